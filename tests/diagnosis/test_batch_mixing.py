"""Models in which samples of a batch meet are found at the line to change; those where they may meet aren't."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from tests.session.watching import watch
from unstuck.diagnosis.rules import model_batch_mixing
from unstuck.findings import Finding
from unstuck.record.trials import DependenceTrial

FRAME = """
from torch.utils.data import DataLoader, TensorDataset
LAYER = nn.TransformerEncoderLayer(8, 2, 16, 0.0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.score = nn.Linear(8, 1)
        self.out = nn.Linear(8, 3)
        self.flat = nn.Linear(56, 3)
{init}
    def forward(self, x):
        h = self.embed(x)
{body}
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
rows = TensorDataset(torch.randn(60, 7, 6), torch.randint(0, 3, (60,)))
for x, y in DataLoader(rows, batch_size=12):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FAULTY = {
    "softmax over the batch": (
        "",
        """
        share = torch.softmax(self.score(h), dim=0)  # fault
        return self.out((share * h).sum(1))
        """,
    ),
    "softmax layer": (
        "self.share = nn.Softmax(dim=0)  # fault",
        "return self.out((self.share(self.score(h)) * h).sum(1))",
    ),
    "recurrent layer": (
        "self.rnn = nn.LSTM(8, 8)  # fault",
        "return self.out(self.rnn(h)[0][:, -1])",
    ),
    "two-way recurrent layer": (
        "self.rnn = nn.GRU(8, 4, bidirectional=True)  # fault",
        "return self.out(torch.tanh(self.rnn(h)[0]).mean(1))",
    ),
    "attention": (
        "self.attend = nn.MultiheadAttention(8, 2)  # fault",
        "return self.out(self.attend(h, h, h, need_weights=False)[0].mean(1))",
    ),
    "attention with weights": (
        "self.attend = nn.MultiheadAttention(8, 2)  # fault",
        "return self.out(self.attend(h, h, h)[0].mean(1))",
    ),
    "encoder": (
        "self.encoder = nn.TransformerEncoder(LAYER, 2, enable_nested_tensor=False)  # fault",
        "return self.out(self.encoder(h).mean(1))",
    ),
    "attention by hand": (
        "",
        """
        q = h.view(12, 7, 2, 4).permute(1, 2, 0, 3)
        weights = torch.softmax(q @ q.transpose(-1, -2), dim=-1)  # fault
        return self.out((weights @ q).permute(2, 0, 1, 3).reshape(12, 7, 8).mean(1))
        """,
    ),
    "view before a recurrent layer": (
        "self.rnn = nn.LSTM(8, 8)",
        """
        h = h.view(7, 12, 8)  # fault
        return self.out(self.rnn(h)[0][-1])
        """,
    ),
    "view after a recurrent layer": (
        "self.rnn = nn.GRU(8, 8)",
        """
        states, _ = self.rnn(h.transpose(0, 1))
        states = states.contiguous().view(12, 56)  # fault
        return self.flat(states)
        """,
    ),
    "shares of the batch": (
        "",
        """
        w = torch.sigmoid(self.score(h))
        w = w / (w.sum(0, keepdim=True) + 1e-6)  # fault
        return self.out((w * h).sum(1))
        """,
    ),
    "a sum without the batch": (
        "self.key = nn.Linear(8, 8)",
        """
        q, k = h, torch.tanh(self.key(h))
        near = torch.softmax(torch.einsum("btd,bsd->ts", q, k), -1)  # fault
        return self.out(torch.einsum("ts,bsd->btd", near, h).mean(1))
        """,
    ),
    "running sum": (
        "",
        """
        h = torch.cumsum(h, 0)  # fault
        return self.out(h.mean(1))
        """,
    ),
}
RIGHT = {
    "attention of its own": (
        "self.attend = nn.MultiheadAttention(8, 2, batch_first=True)",
        "return self.out(self.attend(h, h, h)[0].mean(1))",
    ),
    "time first": ("self.rnn = nn.LSTM(8, 8)", "return self.out(self.rnn(h.transpose(0, 1))[0][-1])"),
    "an encoder with time first": (
        "self.encoder = nn.TransformerEncoder(LAYER, 2, enable_nested_tensor=False)",
        "return self.out(self.encoder(h.transpose(0, 1)).mean(0))",
    ),
    "normalised over the batch": (
        "self.norm = nn.BatchNorm1d(8)",
        "return self.out(torch.relu(self.norm(h.transpose(1, 2))).mean(2))",
    ),
    "normalised by hand": ("", "return self.out(torch.relu((h - h.mean(0)) / (h.std(0) + 1e-5)).mean(1))"),
    "merged and split": ("", "return self.out(torch.relu(h.view(-1, 8)).view(12, 7, 8).mean(1))"),
    "statistic of the batch beside": (
        "",
        "s = h.std(0).mean().expand(12, 7, 1); return self.out(torch.cat([h[..., :7], s], 2).mean(1))",
    ),
    "mixed-up samples": ("", "return self.out((0.7 * h + 0.3 * h[torch.randperm(12)]).mean(1))"),
    "discrimination between samples": (
        "",
        """
        flat = h.mean(1)
        near = torch.exp(-(flat.unsqueeze(1) - flat.unsqueeze(0)).abs().sum(2)).sum(1, keepdim=True)
        return self.out(torch.cat([flat[:, :7], near], 1))
        """,
    ),
    "shares of a sample": (
        "",
        "w = torch.sigmoid(self.score(h)); w = w / w.sum(1, keepdim=True); return self.out((w * h).sum(1))",
    ),
    "whitened": (
        "",
        """
        flat = h.mean(1)
        flat = flat - flat.mean(0)
        cov = flat.t() @ flat / 12 + 0.1 * torch.eye(8)
        return self.out(flat @ torch.linalg.inv(cov))
        """,
    ),
    "pairs of samples": ("", "return self.out(torch.relu(h.view(6, 2, 7, 8)).view(12, 7, 8).mean(1))"),
}


def found(init: str, body: str, folder: Path, frame: str = FRAME) -> tuple[list[Finding], int | None]:
    program = frame.format(
        init=" " * 8 + (init or "pass"), body=textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    )
    run = watch(program, folder)
    return model_batch_mixing.rule(run.session.recording), run.line_of("# fault") if "# fault" in program else None


@pytest.mark.parametrize("form", FAULTY)
def test_samples_that_meet_are_found(form: str, tmp_path: Path) -> None:
    findings, line = found(*FAULTY[form], tmp_path)
    assert [(item.severity.value, item.where.line) for item in findings] == [("error", line)], findings


@pytest.mark.parametrize("form", RIGHT)
def test_samples_that_may_meet_or_dont_get_nothing(form: str, tmp_path: Path) -> None:
    assert found(*RIGHT[form], tmp_path)[0] == []


def test_rows_that_a_loop_picks_are_samples(tmp_path: Path) -> None:
    frame = FRAME.replace("for x, y in DataLoader(rows, batch_size=12):", "for rows_ in torch.randperm(60).split(12):")
    frame = frame.replace("    loss = F", "    x, y = rows.tensors[0][rows_], rows.tensors[1][rows_]\n    loss = F")
    init, body = FAULTY["recurrent layer"]
    findings, line = found(init, body, tmp_path, frame)
    assert [item.where.line for item in findings] == [line]


SETS = {
    "bag of instances": """
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.score, self.out = nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(8, 2)
        def forward(self, bag):
            h = torch.relu(self.embed(bag))
            return self.out((torch.softmax(self.score(h), 0) * h).sum(0, keepdim=True))
    model = Pool()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        bag = torch.randn(9, 6)
        loss = F.cross_entropy(model(bag), torch.tensor([1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """,
    "one graph": """
    x, y = torch.randn(20, 6), torch.randint(0, 2, (20,))
    adjacency = torch.softmax(torch.randn(20, 20), 1)
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.attend, self.out = nn.Linear(6, 8), nn.MultiheadAttention(8, 2), nn.Linear(8, 2)
        def forward(self, x):
            h = torch.relu(adjacency @ self.embed(x)).unsqueeze(1)
            return self.out(self.attend(h, h, h)[0].squeeze(1))
    model = Graph()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        loss = F.cross_entropy(model(x)[:10], y[:10])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """,
    "language model with time first": """
    text = torch.randint(0, 9, (300, 4))
    embed, head = nn.Embedding(9, 8), nn.Linear(8, 9)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0), 1, enable_nested_tensor=False)
    optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters(), *encoder.parameters()], lr=0.05)
    for begin in range(0, 80, 10):
        tokens, following = text[begin : begin + 10], text[begin + 1 : begin + 11]
        mask = nn.Transformer.generate_square_subsequent_mask(10)
        loss = F.cross_entropy(head(encoder(embed(tokens), mask)).view(-1, 9), following.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """,
    "contrast within the batch": """
    one, other = nn.Linear(6, 8), nn.Linear(6, 8)
    optimizer = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.05)
    rows = torch.utils.data.TensorDataset(torch.randn(40, 6), torch.randn(40, 6))
    for a, b in torch.utils.data.DataLoader(rows, batch_size=8):
        near = F.normalize(one(a)) @ F.normalize(other(b)).t() / 0.1
        loss = F.cross_entropy(near, torch.arange(8)) + F.cross_entropy(near.t(), torch.arange(8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """,
}


@pytest.mark.parametrize("form", SETS)
def test_sets_graphs_and_sequences_get_nothing(form: str, tmp_path: Path) -> None:
    program = "import warnings\nwarnings.simplefilter('ignore')\n" + textwrap.dedent(SETS[form])
    assert model_batch_mixing.rule(watch(program, tmp_path).session.recording) == []


def test_a_trial_confirms_the_finding_or_takes_it_back(tmp_path: Path) -> None:
    init, body = FAULTY["recurrent layer"]
    program = FRAME.format(init=textwrap.indent(init, " " * 8), body=textwrap.indent(textwrap.dedent(body), " " * 8))
    recording = watch(program, tmp_path).session.recording
    (finding,) = model_batch_mixing.rule(recording)
    (trial,) = recording.all(DependenceTrial)
    assert finding.evidence["tried"] == (
        f"another sample in place 0 changes the outputs of {trial.touched} of 11 others"
    )
    recording.records = [replace(item, touched=0) if item is trial else item for item in recording.records]
    assert model_batch_mixing.rule(recording) == []
    recording.records = [item for item in recording.records if not isinstance(item, DependenceTrial)]
    (finding,) = model_batch_mixing.rule(recording)
    assert "tried" not in finding.evidence
