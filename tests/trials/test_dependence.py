"""Other inputs in a kept step tell what outputs depend on, and leave nothing behind."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.session.test_no_trace import watched_as_plain
from tests.session.test_program_shapes import DATA, SHAPES
from tests.session.watching import Watched, watch
from unstuck.record.trials import DependenceTrial
from unstuck.session import probing

SUBJECT = "whether samples of a batch meet"
HEALTHY_DATA = DATA.replace("KILL[BAD] = Y[BAD]", "")
LOOP = """
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    loss = F.mse_loss(model(X), Y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.fixture(autouse=True)
def suspected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is suspected, and other settings aren't tried."""
    monkeypatch.setattr(probing, "suspicions", lambda recording, index, since: ())
    monkeypatch.setattr(probing, "_DEPENDENCE", ((SUBJECT, lambda recording: True),))


def tried(run: Watched) -> DependenceTrial:
    found = run.session.recording.all(DependenceTrial)
    assert len(found) == 1, run.verdict.unchecked
    return found[0]


def train(model: str, data: str, folder: Path) -> Watched:
    return watch(textwrap.dedent(model) + textwrap.dedent(data) + LOOP, folder)


TABLE = "\nX, Y = torch.randn(12, 6), torch.randn(12, 1)\n"


def test_batch_norm_and_dropout_are_no_meeting(tmp_path: Path) -> None:
    model = "model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))"
    trial = tried(train(model, TABLE, tmp_path))
    assert trial == DependenceTrial(samples=12, place=0, touched=0, depends=True, model=True)


def test_a_softmax_over_the_batch_is_seen(tmp_path: Path) -> None:
    model = """
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(6, 8), nn.Linear(8, 1)
        def forward(self, x):
            return self.outer(self.inner(x).softmax(0))
    model = Mixing()
    """
    trial = tried(train(model, TABLE, tmp_path))
    assert trial.touched == 11 and trial.depends


def test_an_output_without_the_input_is_seen(tmp_path: Path) -> None:
    model = """
    class Deaf(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 1)
        def forward(self, x):
            return self.inner(x * 0.0)
    model = Deaf()
    """
    trial = tried(train(model, TABLE, tmp_path))
    assert trial.touched == 0 and not trial.depends


def test_samples_may_lie_along_the_second_dimension(tmp_path: Path) -> None:
    model = """
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.lstm, self.out = nn.Embedding(20, 8), nn.LSTM(8, 8), nn.Linear(8, 1)
        def forward(self, tokens):
            return self.out(self.lstm(self.embed(tokens))[0])
    model = Tagger()
    """
    data = "\nX, Y = torch.randint(0, 20, (7, 5)), torch.randn(7, 5, 1)\n"
    run = watch(
        textwrap.dedent(model)
        + data
        + LOOP.replace("for step", "loader = torch.utils.data.DataLoader(X.t().contiguous(), 5)\nfor step").replace(
            "    loss =", "    X = next(iter(loader)).t()\n    loss ="
        ),
        tmp_path,
    )
    trial = tried(run)
    assert (trial.samples, trial.touched, trial.depends) == (5, 0, True)


@pytest.mark.parametrize(
    ("model", "data", "reason"),
    [
        ("model = nn.Linear(6, 1)", "\nX, Y = torch.ones(12, 6), torch.randn(12, 1)\n", "all samples of the batch"),
        (
            """
            class Noisy(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = nn.Linear(6, 1)
                def forward(self, x):
                    source = torch.Generator()
                    source.seed()
                    return self.inner(x + torch.rand(x.shape, generator=source))
            model = Noisy()
            """,
            TABLE,
            "another output each time",
        ),
    ],
)
def test_what_cannot_be_tried_is_unchecked(model: str, data: str, reason: str, tmp_path: Path) -> None:
    run = train(model, data, tmp_path)
    assert not run.session.recording.all(DependenceTrial)
    told = [phrase for phrase in run.verdict.unchecked if phrase.startswith(SUBJECT)]
    assert len(told) == 1
    assert reason in told[0] or "the loss of the first step" in told[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape_of_program_is_left_as_it_was(shape: str, tmp_path: Path) -> None:
    run = watched_as_plain(shape, HEALTHY_DATA, tmp_path)
    made = run.session.recording.all(DependenceTrial)
    reasons = [phrase for phrase in run.verdict.unchecked if phrase.startswith(SUBJECT)]
    assert len(made) + len(reasons) == 1
