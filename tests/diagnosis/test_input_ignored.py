"""Outputs that don't depend on the input are found at the line to change; those that only look so aren't."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.session.watching import watch
from unstuck.diagnosis.rules import model_input_ignored
from unstuck.findings import Finding

FRAME = """
from torch.utils.data import DataLoader, TensorDataset
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.mean, self.spread = nn.Linear(8, 8), nn.Linear(8, 8)
        self.table = nn.Embedding(5, 8)
        self.query = nn.Parameter(torch.randn(1, 8))
        self.gate = nn.Parameter(torch.zeros(1))
        self.single = nn.LayerNorm(1)
        self.register_buffer("clock", torch.linspace(0, 1, 8))
    def forward(self, x, c):
{body}
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
rows = TensorDataset(torch.rand(200, 6), torch.randn(200, 6), torch.randn(200, 3))
for x, c, y in DataLoader(rows, batch_size=8):
    optimizer.zero_grad()
    {loss}
    loss.backward()
    optimizer.step()
"""
LOSS = "loss = F.mse_loss(model(x, c), y)"
FAULTY = {
    "another variable": """
        h = self.query.expand(len(x), -1)
        joined = h + torch.tanh(self.first(x))
        return self.out(torch.tanh(self.second(h)))  # fault
    """,
    "overwritten": """
        h = torch.relu(self.first(x))
        h = torch.zeros_like(h)  # fault
        return self.out(torch.tanh(self.second(h)))
    """,
    "times nothing": """
        h = torch.tanh(self.first(x))
        h = h * 0.0  # fault
        return self.out(torch.tanh(self.second(h)))
    """,
    "a gate that nothing opens": """
        h = torch.tanh(self.first(x)) * self.gate.detach()  # fault
        return self.out(torch.tanh(self.second(h)))
    """,
    "shares cast to indices": """
        h = self.table(x[:, 0].long())  # fault
        return self.out(torch.tanh(self.second(h)))
    """,
    "normalised alone": """
        h = self.single(x[:, :1])  # fault
        return self.out(torch.tanh(self.second(h.expand(-1, 8))))
    """,
    "the clock alone": """
        h = torch.tanh(self.first(x))
        t = self.clock.expand(len(x), -1)
        return self.out(torch.tanh(self.second(t)))  # fault
    """,
    "noise in the place of a sample": """
        h = torch.tanh(self.first(x))
        mean, spread = self.mean(h), self.spread(h)
        z = torch.randn_like(spread)  # fault
        return self.out(torch.tanh(self.second(z)))
    """,
}
RIGHT = {
    "plain": "return self.out(torch.tanh(self.second(torch.tanh(self.first(x) + self.first(c)))))",
    "a gate that opens": """
        return self.out(self.query + torch.tanh(self.first(x)) * self.gate + 0 * self.first(c))
    """,
    "a query that attends": """
        h = torch.stack([self.first(x), self.first(c)], 1)
        share = torch.softmax(h @ self.query.t(), 1)
        return self.out((share * h).sum(1))
    """,
    "written piece by piece": """
        h = torch.zeros(len(x), 8)
        h[:, :6] = x
        h[:, 2:] += c
        return self.out(torch.tanh(self.second(h)))
    """,
    "through numpy": """
        h = torch.from_numpy(x.numpy() * 2)
        return self.out(torch.tanh(self.first(h)) + torch.tanh(self.first(c)))
    """,
    "a sample of a distribution": """
        h = torch.tanh(self.first(x) + self.first(c))
        z = self.mean(h) + torch.randn_like(h) * self.spread(h).exp()
        return self.out(torch.tanh(self.second(z)))
    """,
}


def found(body: str, folder: Path, loss: str = LOSS) -> tuple[list[Finding], int | None]:
    program = FRAME.format(body=textwrap.indent(textwrap.dedent(body).strip(), " " * 8), loss=loss)
    run = watch(program, folder)
    return model_input_ignored.rule(run.session.recording), run.line_of("# fault") if "# fault" in program else None


@pytest.mark.parametrize("form", FAULTY)
def test_an_output_that_is_always_the_same_is_found(form: str, tmp_path: Path) -> None:
    findings, line = found(FAULTY[form], tmp_path)
    assert [(item.severity.value, item.where.line) for item in findings] == [("error", line)], findings


@pytest.mark.parametrize("form", RIGHT)
def test_an_output_that_depends_on_the_input_gets_nothing(form: str, tmp_path: Path) -> None:
    assert found(RIGHT[form], tmp_path)[0] == []


def test_one_of_two_inputs_that_reaches_no_loss_is_found(tmp_path: Path) -> None:
    body = """
        extra = torch.tanh(self.second(torch.relu(self.mean(torch.tanh(self.first(c))))))  # fault
        return self.out(torch.tanh(self.first(x)))
    """
    findings, line = found(body, tmp_path)
    assert [(item.severity.value, item.where.line) for item in findings] == [("warning", line)], findings
    assert findings[0].evidence["inputs"] == ["[1]"]


@pytest.mark.parametrize(
    "loss",
    [
        "model(x, c); loss = F.mse_loss(model.out(torch.tanh(model.query)).expand(8, -1), torch.zeros(8, 3))",
        "loss = F.mse_loss(model(x, c), y) + F.mse_loss(model.out(model.query).expand(8, -1), y)",
    ],
)
def test_terms_without_the_input_beside_others_are_no_fault(loss: str, tmp_path: Path) -> None:
    assert found("return self.out(torch.tanh(self.first(x) + self.first(c)))", tmp_path, loss)[0] == []


def test_numbers_that_a_loop_draws_are_an_input(tmp_path: Path) -> None:
    program = """
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    true = torch.randn(4, 1)
    measured = torch.sin(torch.linspace(0, 3, 16)).unsqueeze(1)
    for _ in range(12):
        x = torch.randn(16, 4)
        t = torch.linspace(0, 1, 16).unsqueeze(1).expand(-1, 4)
        loss = F.mse_loss(model(x), x @ true) + F.mse_loss(model(t), measured)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    assert model_input_ignored.rule(watch(program, tmp_path).session.recording) == []
