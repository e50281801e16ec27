"""Heads that can't reach their targets are found; heads that fit them aren't."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.watching import watch
from unstuck.diagnosis.rules import model_output_activation
from unstuck.findings import Finding

HEAD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)
        self.rnn = nn.LSTM(6, 3, batch_first=True)
    def forward(self, x):
        return self.head(self.body(x))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
y = torch.randn(40, 3)
share = torch.rand(40, 3)
sign = 2 * share - 1
labels = torch.randint(0, 3, (40,))
several = (torch.rand(40, 3) > 0.3).float()
several[0, 0] = 0.0
one_hot = F.one_hot(labels, 3).float()
x = torch.randn(40, 6)
for _ in range(2):
    z = model(x)
"""
TAIL = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FAULTY = {
    "relu": ("loss = F.mse_loss(torch.relu(z), y)", "error"),
    "relu by clamping": ("loss = F.mse_loss(z.clamp(min=0), y)", "error"),
    "relu, by hand": ("loss = ((torch.relu(z) - y) ** 2).mean()", "error"),
    "relu, absolute": ("loss = F.l1_loss(F.relu(z).view(-1), y.view(-1))", "error"),
    "softplus": ("loss = F.smooth_l1_loss(F.softplus(z), y)", "error"),
    "exponential": ("loss = F.huber_loss(z.exp(), y)", "error"),
    "sigmoid": ("loss = F.mse_loss(torch.sigmoid(z), 3 + share)", "error"),
    "tanh": ("loss = F.mse_loss(torch.tanh(z), 4 * y)", "error"),
    "scaled tanh": ("loss = F.mse_loss(2 * torch.tanh(z), 9 * y)", "error"),
    "tanh for targets a little wider": ("loss = F.mse_loss(torch.tanh(z), 0.8 * y)", "warning"),
    "recurrent states": ("loss = F.mse_loss(model.rnn(x.view(8, 5, 6))[0][:, -1], 10 + z[:8].detach())", "error"),
    "softmax of scores": ("loss = F.mse_loss(z.softmax(1), 5 * share)", "error"),
    "one unit": ("loss = F.binary_cross_entropy(z[:, :1].softmax(1), share[:, :1])", "error"),
    "several labels": ("loss = F.binary_cross_entropy(z.softmax(1), several)", "error"),
    "tanh before classes": ("loss = F.cross_entropy(torch.tanh(z), labels)", "error"),
    "relu before classes": ("loss = F.cross_entropy(torch.relu(z), labels)", "warning"),
    "relu before logits": ("loss = F.binary_cross_entropy_with_logits(torch.relu(z), several)", "error"),
    "relu before a sigmoid": ("loss = F.binary_cross_entropy(torch.sigmoid(torch.relu(z)), several)", "error"),
    "weighted": ("loss = (share * (torch.relu(z) - y).abs()).mean()", "error"),
}
RIGHT = {
    "none": "loss = F.mse_loss(z, y)",
    "relu for what is positive": "loss = F.mse_loss(torch.relu(z), y.abs())",
    "sigmoid for shares": "loss = F.mse_loss(torch.sigmoid(z), share)",
    "entropy of shares": "loss = F.binary_cross_entropy(torch.sigmoid(z), share)",
    "tanh for signs": "loss = F.mse_loss(torch.tanh(z), sign)",
    "a scale": "loss = F.mse_loss(10 * torch.sigmoid(z) - 5, y)",
    "a scale of its own": "loss = F.mse_loss(torch.tanh(z) * y.abs().max() * 1.2, y)",
    "residual": "loss = ((x[:, :3] - torch.relu(z) - y) ** 2).mean()",
    "residual, torch's": "loss = F.mse_loss(x[:, :3] + torch.tanh(z), y)",
    "noise below zero": "loss = F.mse_loss(torch.relu(z), share - 0.02)",
    "softmax for classes": "loss = F.mse_loss(z.softmax(1), one_hot)",
    "one label": "loss = F.binary_cross_entropy(z.softmax(1), one_hot)",
    "wide tanh before classes": "loss = F.cross_entropy(10 * torch.tanh(z), labels)",
    "logits": "loss = F.binary_cross_entropy_with_logits(z, several)",
    "ratio of policies": (
        "p = z.log_softmax(1)[:, 0]; r = (p - p.detach()).exp(); loss = -torch.min(r * y[:, 0], r.clamp(0, 2)).mean()"
    ),
    "features": "loss = F.mse_loss(model.body(x), model.body(x).detach() * 0.9) + z.mean()",
    "hidden units beside another term": "h = model.body(x); loss = F.mse_loss(model.head(h), y) + 0.1 * h.mean()",
}


def found(line: str, folder: Path) -> tuple[list[Finding], int]:
    run = watch(HEAD + "    " + line + TAIL, folder)
    return model_output_activation.rule(run.session.recording), run.line_of(line[:60])


@pytest.mark.parametrize("spelling", FAULTY)
def test_a_head_that_cant_reach_is_found(spelling: str, tmp_path: Path) -> None:
    program, severity = FAULTY[spelling]
    findings, line = found(program, tmp_path)
    assert [(item.where.line, item.severity.value) for item in findings] == [(line, severity)], findings
    assert findings[0].evidence["losses seen"] == 2


@pytest.mark.parametrize("spelling", RIGHT)
def test_a_head_that_fits_gets_nothing(spelling: str, tmp_path: Path) -> None:
    assert found(RIGHT[spelling], tmp_path)[0] == []


def test_the_layer_before_is_named(tmp_path: Path) -> None:
    findings, _ = found(FAULTY["relu"][0], tmp_path)
    assert findings[0].where.module == "head" and findings[0].where.op == "relu"
