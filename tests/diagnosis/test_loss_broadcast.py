"""Outputs and targets that broadcast astray are found; what is compared in pairs on purpose isn't."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.watching import watch
from unstuck.diagnosis.rules import loss_broadcast
from unstuck.findings import Finding

HEAD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.head = nn.Linear(8, 1)
    def forward(self, x):
        return self.head(self.body(x))
model = Net()
signal = nn.Conv1d(2, 1, 3, padding=1)
optimizer = torch.optim.SGD([*model.parameters(), *signal.parameters()], lr=0.01)
from torch.utils.data import DataLoader, TensorDataset
rows = TensorDataset(torch.randn(24, 6), torch.randn(24), torch.randn(24, 2, 7), torch.rand(24, 7))
for x, y, waves, curve in DataLoader(rows, batch_size=8):
    z = model(x)
    w = signal(waves)
    column = y.view(-1, 1)
    flat = z.squeeze(1)
"""
TAIL = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FAULTY = {
    "squared error": "loss = ((z - y) ** 2).mean()",
    "the other way round": "loss = (y - z).pow(2).sum()",
    "torch's": "loss = nn.MSELoss()(z, y)",
    "absolute": "loss = F.l1_loss(z, y)",
    "smooth": "loss = F.smooth_l1_loss(z, y)",
    "root of the mean": "loss = torch.sqrt(((z - y) ** 2).mean() + 1e-8)",
    "huber by hand": "e = (z - y).abs(); loss = torch.where(e < 1, 0.5 * e * e, e - 0.5).mean()",
    "log-cosh": "loss = torch.log(torch.cosh(z - y)).mean()",
    "hinge": "loss = (1 - z * y.sign()).clamp(min=0).mean()",
    "column as the target": "loss = ((flat - column) ** 2).mean()",
    "weights per sample": "loss = ((z - column) ** 2 * y.abs()).mean()",
    "advantages": "loss = -(F.logsigmoid(z) * y).mean()",
    "channel of one": "loss = ((w - curve) ** 2).mean()",
    "channel of one, torch's": "loss = F.huber_loss(w, curve)",
    "a target that was spoilt": "g = y + 0.9 * z.detach(); loss = F.mse_loss(z, g)",
    "mean in two steps": "loss = ((z - y) ** 2).mean(1).mean()",
    "poisson": "loss = (z.exp() - y.abs() * z).mean()",
}
RIGHT = {
    "same shapes": "loss = ((flat - y) ** 2).mean()",
    "columns": "loss = F.mse_loss(z, column)",
    "channels": "loss = F.mse_loss(w.squeeze(1), curve)",
    "differences of outputs": "loss = (z - flat).abs().mean()",
    "pairs on purpose": "loss = (flat.unsqueeze(1) - y.unsqueeze(0)).abs().mean()",
    "pairs by indexing": "loss = (flat[:, None] - y).abs().mean()",
    "kernel": "loss = -torch.exp(-((z - y) ** 2)).mean()",
    "nearest": "loss = ((z - y) ** 2).min(1).values.mean()",
    "quantiles": "loss = (torch.cat([z, z + 1, z - 1], 1) - column).abs().mean()",
    "bins": "loss = (torch.sigmoid(4 * (z - torch.linspace(0, 1, 5))).mean(0) - 0.5).pow(2).mean()",
    "a curve for all": "loss = ((w.squeeze(1) - curve.mean(0)) ** 2).mean()",
    "a number per sample": "loss = ((w.squeeze(1) - column) ** 2).mean()",
    "distances as targets": "loss = F.mse_loss(z @ z.t(), torch.cdist(x, x))",
    "contrast": "s = z @ z.t(); loss = F.cross_entropy(s, torch.arange(8))",
}


def found(line: str, folder: Path) -> tuple[list[Finding], int]:
    run = watch("import warnings\nwarnings.simplefilter('ignore')\n" + HEAD + "    " + line + TAIL, folder)
    return loss_broadcast.rule(run.session.recording), run.line_of(line[:60])


@pytest.mark.parametrize("spelling", FAULTY)
def test_shapes_that_broadcast_are_found(spelling: str, tmp_path: Path) -> None:
    findings, line = found(FAULTY[spelling], tmp_path)
    assert [item.where.line for item in findings] == [line], findings
    assert "(8, 8" in findings[0].evidence["result"]


@pytest.mark.parametrize("spelling", RIGHT)
def test_shapes_that_are_meant_get_nothing(spelling: str, tmp_path: Path) -> None:
    assert found(RIGHT[spelling], tmp_path)[0] == []
