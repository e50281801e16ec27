"""What a loop receives is told as it was: by index, with workers, without a loader, for one-pass loaders."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.session.watching import Watched, watch
from unstuck.instruments.batch_probes import count_turned, depends_on_tokens
from unstuck.record.batches import BatchesRecord, IndexPart
from unstuck.record.plain import from_plain, to_plain
from unstuck.record.recording import load_recording
from unstuck.session import SessionOptions

LOADER = """
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Rows(Dataset):
    def __init__(self, noise):
        self.rows, self.kinds, self.noise = torch.randn(48, 6), torch.arange(48) % 3, noise

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return self.rows[index] + self.noise * torch.randn(6), self.kinds[index]

data = Rows({noise})
model = nn.Linear(6, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for rows, kinds in DataLoader(data, batch_size=8, shuffle=True, num_workers={workers}):
        loss = F.cross_entropy(model(rows), kinds)
        opt.zero_grad(); loss.backward(); opt.step()
"""


def record_of(run: Watched) -> BatchesRecord:
    (record,) = run.session.recording.all(BatchesRecord)
    return record


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_indices_are_matched_with_what_arrives(noise: float, workers: int, tmp_path: Path) -> None:
    record = record_of(watch(LOADER.format(noise=noise, workers=workers), tmp_path))
    index, loader, target = record.index, record.loader, record.target
    assert index is not None and loader is not None and target is not None
    assert (index.indices, index.again, index.same_target) == (48, 96, 96)
    assert index.same == (96 if noise == 0.0 else 0)
    assert (loader.dataset, loader.size, loader.batches, loader.iterations, loader.in_order) == (
        "Rows",
        48,
        6,
        3,
        False,
    )
    assert (target.kind, target.classes, target.given, target.counts) == ("nll", 3, True, {0: 48, 1: 48, 2: 48})
    assert (record.pairs.changed, record.pairs.torn) == (0, 0)
    assert record.pairs.again == (96 if noise == 0.0 else 0)


def test_watching_changes_no_number(tmp_path: Path) -> None:
    program = LOADER.format(noise=1.0, workers=0)
    watched = watch(program, tmp_path).namespace["loss"].item()
    torch.manual_seed(0)
    namespace: dict[str, object] = {}
    exec("import torch\nfrom torch import nn\nimport torch.nn.functional as F\n" + program, namespace)
    loss = namespace["loss"]
    assert isinstance(loss, torch.Tensor) and loss.item() == watched


def test_without_a_loader_inputs_and_targets_are_those_of_the_call(tmp_path: Path) -> None:
    run = watch(
        """
        x, y = torch.randn(40, 5), torch.randn(40, 1)
        model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
        opt = torch.optim.Adam(model.parameters())
        for epoch in range(4):
            for rows in torch.randperm(40).split(8):
                batch = x[rows]  # ROWS
                loss = F.mse_loss(model(batch), y[rows])
                opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
    )
    record = record_of(run)
    assert record.loader is None and record.index is None
    assert (record.pairs.inputs, record.pairs.again, record.pairs.changed, record.pairs.even) == (40, 120, 0, True)
    assert record.rows_at is not None and record.rows_at.line == run.line_of("# ROWS")
    assert record.scale is not None and record.target is not None and record.target.kind == "mse"


def test_two_backward_calls_are_told_apart_and_the_record_is_read_back(tmp_path: Path) -> None:
    run = watch(
        """
        a, b = nn.Linear(4, 4), nn.Linear(4, 1)
        opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.01)
        real, kinds = torch.randn(64, 4), torch.zeros(64, 1)
        for step in range(12):
            first = F.mse_loss(a(real[:8]), real[:8])
            opt.zero_grad(); first.backward(); opt.step()
            second = F.binary_cross_entropy_with_logits(b(real[8:24]), kinds[8:24])
            opt.zero_grad(); second.backward(); opt.step()
        """,
        tmp_path,
        SessionOptions(out=tmp_path / "out"),
    )
    records = run.session.recording.all(BatchesRecord)
    assert [item.target.kind for item in records if item.target is not None] == ["mse", "bce with logits"]
    assert [item.passes for item in records] == [12, 12]
    assert load_recording(tmp_path / "out" / "recording.jsonl").all(BatchesRecord) == records
    assert from_plain(BatchesRecord, to_plain(records[0])) == records[0]


def test_turned_images_are_told_from_shifted_ones() -> None:
    image = torch.randn(1, 12, 12, generator=torch.Generator().manual_seed(0))
    part = IndexPart()
    count_turned([[(image, None), (image.flip(-1), None), (image.roll(1, -1), None), (image.flip(-2), None)]], part)
    assert (part.turned, part.upright, part.apart) == ({"left and right": 1, "upside down": 1}, 1, 0)
    count_turned([[(image, None), (image.rot90(1, (1, 2)), None), (image.flip(1, 2), None)]], part)
    assert part.turned == {"by a quarter turn": 1, "by half a turn": 1}
    count_turned([[(image, None), (torch.randn(1, 12, 12), None)]], part)
    assert (part.turned, part.upright) == ({}, 0)


def test_targets_that_stay_when_their_images_are_turned() -> None:
    image = torch.randn(1, 12, 12, generator=torch.Generator().manual_seed(0))
    mask = (image > 0.5).float()
    part = IndexPart()
    count_turned([[(image, mask), (image.flip(-1), mask), (image.flip(-1), mask.flip(-1))]], part)
    assert (part.apart, part.together) == (1, 1)


class Tokens(torch.nn.Module):
    def __init__(self, both: bool) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(9, 8)
        self.cell = torch.nn.GRU(8, 8, batch_first=True, bidirectional=both)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.cell(self.embedding(tokens))[0])


@pytest.mark.parametrize("both", [False, True])
def test_whether_a_model_looks_ahead_is_tried_on_a_copy(both: bool) -> None:
    torch.manual_seed(0)
    model = Tokens(both)
    tokens = torch.randint(0, 9, (3, 10))
    state, weights = torch.random.get_rng_state(), model.embedding.weight.clone()
    assert depends_on_tokens(model, (tokens,), {}) == (not both, True)
    assert torch.equal(state, torch.random.get_rng_state()) and model.training
    assert torch.equal(weights, model.embedding.weight)
    assert depends_on_tokens(torch.nn.Linear(10, 2), (torch.rand(3, 10),), {}) is None
