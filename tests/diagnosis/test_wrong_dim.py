"""What is normalised over the wrong dimension is found; other dimensions that are right get nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.watching import watch
from unstuck.diagnosis.rules import loss_wrong_dim
from unstuck.findings import Finding

HEAD = """
from torch.utils.data import DataLoader, TensorDataset
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out, self.wide = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 7)
        self.image = nn.Conv2d(1, 3, 3, padding=1)
        self.log_softmax = nn.LogSoftmax(dim=0)  # made
    def forward(self, x):
        return torch.relu(self.embed(x))
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
rows = TensorDataset(
    torch.randn(48, 7, 6), torch.randint(0, 3, (48,)), torch.randint(0, 3, (48, 7)), torch.randint(0, 7, (48, 7))
)
for x, y, tags, seven in DataLoader(rows, batch_size=12):
    h = model(x)
    z, s = model.out(h.mean(1)), model.out(h)
    one_hot = F.one_hot(y, 3).float()
    maps = model.image(x.unsqueeze(1))
"""
TAIL = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FAULTY = {
    "over samples": "loss = F.nll_loss(F.log_softmax(z, dim=0), y)",
    "over samples, layer": "loss = F.nll_loss(model.log_softmax(z), y)",
    "over samples, picked by hand": "loss = -F.log_softmax(z, 0).gather(1, y[:, None]).mean()",
    "over samples, picked by index": "loss = -torch.log(F.softmax(z, 0) + 1e-9)[torch.arange(12), y].mean()",
    "over samples, by hand": "p = z.exp() / z.exp().sum(0, keepdim=True); loss = -(one_hot * p.log()).sum(1).mean()",
    "over samples, squared error": "loss = ((F.softmax(z, dim=0) - one_hot) ** 2).mean()",
    "over time": "loss = F.nll_loss(F.log_softmax(s, dim=1).view(-1, 3), tags.view(-1))",
    "over time, transposed": "loss = F.nll_loss(F.log_softmax(s, 1).transpose(1, 2), tags)",
    "over places": "loss = F.nll_loss(F.log_softmax(maps, dim=2), (tags[:, :, None] + 0).expand(12, 7, 6))",
    "classes last": "loss = F.cross_entropy(model.wide(h), seven)",
    "lengths over samples": (
        "a, b = F.normalize(h.mean(1), dim=0), F.normalize(h.amax(1), dim=0); "
        "loss = F.cross_entropy(a @ b.t() / 0.1, torch.arange(12))"
    ),
}
RIGHT = {
    "over classes": "loss = F.nll_loss(F.log_softmax(z, dim=1), y)",
    "over classes of each place": "loss = F.nll_loss(F.log_softmax(s, -1).view(-1, 3), tags.view(-1))",
    "over classes, transposed": "loss = F.nll_loss(F.log_softmax(s.transpose(1, 2), 1), tags)",
    "over channels": "loss = F.nll_loss(F.log_softmax(maps, 1), tags[:, :, None].expand(12, 7, 6))",
    "over places": "loss = F.cross_entropy(maps.flatten(2).flatten(0, 1), torch.zeros(36, dtype=torch.long))",
    "pointer": "loss = F.nll_loss(F.log_softmax(s[..., 0], 1), seven[:, 0])",
    "classes first": "loss = F.cross_entropy(model.wide(h).transpose(1, 2), seven)",
    "contrast both ways": (
        "a, b = F.normalize(h.mean(1)), F.normalize(h.amax(1)); n = a @ b.t() / 0.1; "
        "loss = F.cross_entropy(n, torch.arange(12)) + F.cross_entropy(n.t(), torch.arange(12))"
    ),
    "contrast both ways, by hand": (
        "n = h.mean(1) @ h.amax(1).t(); loss = -(F.log_softmax(n, 0).diag() + F.log_softmax(n, 1).diag()).mean()"
    ),
    "correlations of features": (
        "a, b = F.normalize(h.mean(1), dim=0), F.normalize(h.amax(1), dim=0); "
        "loss = ((a.t() @ b - torch.eye(8)) ** 2).mean()"
    ),
    "weights of samples": "w = F.softmax(z[:, 0], 0); loss = (w * F.cross_entropy(z, y, reduction='none')).sum()",
    "listwise": "loss = -(F.log_softmax(z[:, 0], 0) * one_hot[:, 0]).sum()",
    "spread over the batch": "p = F.softmax(z, 1).mean(0); loss = (p * p.log()).sum() + F.cross_entropy(z, y)",
}


def found(line: str, folder: Path) -> tuple[list[Finding], int]:
    run = watch(HEAD + "    " + line + TAIL, folder)
    mark = "# made" if "model.log_softmax" in line else line[:60]
    return loss_wrong_dim.rule(run.session.recording), run.line_of(mark)


@pytest.mark.parametrize("form", FAULTY)
def test_a_wrong_dimension_is_found(form: str, tmp_path: Path) -> None:
    findings, line = found(FAULTY[form], tmp_path)
    assert [(item.severity.value, item.where.line) for item in findings] == [("error", line)], findings


@pytest.mark.parametrize("form", RIGHT)
def test_a_right_dimension_gets_nothing(form: str, tmp_path: Path) -> None:
    assert found(RIGHT[form], tmp_path)[0] == []
