"""Compiled models stay compiled: as many compiled frames, the same bits, no warning, and an incident is still named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.session.test_no_trace import plain
from tests.session.watching import watch

SETUP = """
import torch._dynamo
from torch._dynamo.utils import counters
torch._dynamo.reset(); counters.clear()
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(40, 4), torch.randn(40, 1)), batch_size=8)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
    def forward(self, x):
        return self.body(x)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
"""
LOOP = """
for epoch in range(3):
    for x, y in loader:
        loss = step(x, y)
        opt.zero_grad(); loss.backward(); opt.step()
    net(x)
frames = dict(counters["frames"]); stats = dict(counters["stats"])
weights = [p.detach().clone() for p in net.parameters()]
"""
WAYS = {
    "module": "model = torch.compile(net, backend='aot_eager')\ndef step(x, y): return F.mse_loss(model(x), y)",
    "in place": "net.compile(backend='aot_eager')\ndef step(x, y): return F.mse_loss(net(x), y)",
    "function": "@torch.compile(backend='aot_eager')\ndef step(x, y): return F.mse_loss(net(x), y)",
    "submodule": (
        "net.body[0] = torch.compile(net.body[0], backend='aot_eager')\ndef step(x, y): return F.mse_loss(net(x), y)"
    ),
    "after an eager step": (
        "net(torch.randn(2, 4)).sum().backward(); opt.step()\n"
        "model = torch.compile(net, backend='aot_eager')\ndef step(x, y): return F.mse_loss(model(x), y)"
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _compiled_before(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The first compilation of a process in which a step has been replayed counts one frame more, watched or not."""
    plain(SETUP + WAYS["module"] + LOOP, tmp_path_factory.mktemp("before"))


@pytest.mark.parametrize("way", WAYS)
def test_as_many_frames_and_the_same_bits(way: str, tmp_path: Path) -> None:
    program = SETUP + WAYS[way] + LOOP
    expected, _ = plain(program, tmp_path)
    run = watch(program, tmp_path)
    assert run.verdict.findings == ()
    found: dict[str, Any] = run.namespace
    assert expected["frames"]["ok"] > 0
    assert (found["frames"], found["stats"]) == (expected["frames"], expected["stats"])
    assert all(torch.equal(a, b) for a, b in zip(found["weights"], expected["weights"], strict=True))


@pytest.mark.parametrize("way", ["module", "in place", "function"])
def test_an_incident_in_a_compiled_model_is_named(way: str, tmp_path: Path) -> None:
    bad = WAYS[way].replace("F.mse_loss(", "loss_of(")
    helper = "\ndef loss_of(p, y):\n    return torch.log((p - y).abs() * (y != Y0)).mean()  # HERE\n"
    run = watch(SETUP + "Y0 = loader.dataset.tensors[1][21]\n" + helper + bad + LOOP, tmp_path)
    where = run.finding.where
    assert run.finding.code == "numerics.nonfinite-forward"
    assert (where.op, where.line, where.step, where.batch) == ("log", run.line_of("# HERE"), 2, 2)
