"""Every spelling of a wrong form before a loss is recognised by what is computed; right forms get nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.watching import watch
from unstuck.diagnosis.rules import loss_activation_mismatch
from unstuck.findings import Finding

HEAD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)
        self.softmax = nn.Softmax(dim=-1)
        self.single = nn.Linear(8, 1)
    def forward(self, x):
        return self.head(self.body(x))
def squashed(scores):
    return F.softmax(scores, dim=1)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
y = torch.randint(0, 3, (12,))
one_hot = F.one_hot(y, 3).float()
soft = one_hot * 0.8 + 0.2 / 3
binary = (y > 0).float()
x = torch.randn(12, 6)
for _ in range(2):
    z, z2 = model(x), model.single(model.body(x))
"""
TAIL = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

FAULTY = {
    "inline": "loss = F.cross_entropy(torch.softmax(z, 1), y)",
    "method": "loss = F.cross_entropy(z.softmax(-1), y)",
    "module": "loss = nn.CrossEntropyLoss()(model.softmax(z), y)",
    "helper": "loss = F.cross_entropy(squashed(z), y)",
    "behind a view": "loss = F.cross_entropy(z.softmax(1).view(3, 4, 3).reshape(-1, 3), y)",
    "behind an index": "loss = F.cross_entropy(z.softmax(1)[:8], y[:8])",
    "behind a cast": "loss = F.cross_entropy(z.softmax(1).double().float(), y)",
    "behind a clamp": "loss = F.cross_entropy(z.softmax(1).clamp(1e-7, 1), y)",
    "behind a shift": "loss = F.cross_entropy(z.softmax(1) + 1e-8, y)",
    "behind a permutation": "loss = F.cross_entropy(z.softmax(1).t().contiguous().t(), y)",
    "smoothed": "loss = F.cross_entropy(z.softmax(1), y, label_smoothing=0.1)",
    "soft targets": "loss = F.cross_entropy(z.softmax(1), soft)",
    "by hand": "loss = F.cross_entropy(z.exp() / z.exp().sum(1, keepdim=True), y)",
    "by hand, steadied": (
        "e = (z - z.max(1, keepdim=True)[0]).exp(); loss = F.cross_entropy(e / e.sum(1, keepdim=True), y)"
    ),
    "entropy by hand": "p = z.softmax(1); loss = -(p - torch.logsumexp(p, 1, keepdim=True))[range(12), y].mean()",
    "sigmoid and classes": "loss = F.cross_entropy(torch.sigmoid(z), y)",
    "softmax twice": "loss = -(one_hot * torch.log(torch.softmax(squashed(z), 1) + 1e-9)).sum(1).mean()",
    "sigmoid twice": "loss = F.binary_cross_entropy(torch.sigmoid(torch.sigmoid(z[:, 0])), binary)",
    "sigmoid before logits": "loss = F.binary_cross_entropy_with_logits(torch.sigmoid(z[:, 0]), binary)",
    "sigmoid by hand": "loss = nn.BCEWithLogitsLoss()(1 / (1 + torch.exp(-z[:, 0])), binary)",
    "softmax before logits": "loss = F.binary_cross_entropy_with_logits(z.softmax(1), one_hot)",
    "several labels": "loss = F.multilabel_soft_margin_loss(z.sigmoid(), one_hot)",
    "ranking": "loss = -F.logsigmoid(torch.sigmoid(z[:, 0])).mean()",
    "probabilities as log": "loss = F.nll_loss(z.softmax(1), y)",
    "logits as log": "loss = F.nll_loss(z, y)",
    "logits as log in two dimensions": "loss = F.nll_loss(z.t().contiguous().view(1, 3, 4, 3), y.view(1, 4, 3))",
    "logits for alignment": (
        "loss = F.ctc_loss(z[:6, None], torch.tensor([[1, 2]]), torch.tensor([6]), torch.tensor([2]))"
    ),
    "divergence of probabilities": "loss = F.kl_div(z.softmax(1), soft, reduction='batchmean')",
    "divergence of logits": "loss = nn.KLDivLoss(reduction='batchmean')(z, soft)",
    "logits as probabilities": "loss = F.binary_cross_entropy(z[:, 0].clamp(0, 1), binary)",
    "logits as probabilities, by hand": (
        "p = z[:, 0].clamp(1e-6, 1 - 1e-6); loss = -(binary * p.log() + (1 - binary) * (1 - p).log()).mean()"
    ),
    "a single class": "loss = F.cross_entropy(z2, binary[:, None])",
    "log-probabilities as logits": "loss = F.binary_cross_entropy_with_logits(z.log_softmax(1), one_hot)",
    "a rate as its logarithm": "loss = F.poisson_nll_loss(F.softplus(z[:, 0]), binary)",
    "margin": "loss = F.soft_margin_loss(torch.sigmoid(z), 2 * one_hot - 1)",
    "overlap": "loss = 1 - (2 * (z * one_hot).sum() + 1) / (z.sum() + one_hot.sum() + 1)",
    "overlap of each class": "loss = (1 - 2 * (z * one_hot).sum(0) / (z.sum(0) + one_hot.sum(0) + 1e-6)).mean()",
    "beside another term": "loss = F.mse_loss(z, one_hot) + 0.5 * F.cross_entropy(z.softmax(1), y)",
}
RIGHT = {
    "logits": "loss = F.cross_entropy(z, y)",
    "log-softmax": "loss = F.nll_loss(F.log_softmax(z, 1), y)",
    "log-softmax twice": "loss = F.cross_entropy(F.log_softmax(z, 1), y)",
    "logarithm of a softmax": "loss = F.nll_loss(torch.log(z.softmax(1) + 1e-8), y)",
    "sigmoid": "loss = F.binary_cross_entropy(torch.sigmoid(z[:, 0]), binary)",
    "logits for a sigmoid": "loss = F.binary_cross_entropy_with_logits(z, one_hot)",
    "squared error of probabilities": "loss = F.mse_loss(z.softmax(1), one_hot)",
    "scaled up": "loss = F.cross_entropy(20 * torch.sigmoid(z), y)",
    "temperature": "loss = F.cross_entropy(z.sigmoid() / 0.07, y)",
    "divergence": "loss = F.kl_div(z.log_softmax(1), soft, reduction='batchmean')",
    "divergence of logarithms": "loss = F.kl_div(z.log_softmax(1), soft.log(), reduction='batchmean', log_target=True)",
    "soft targets": "loss = F.cross_entropy(z, z.detach().softmax(1))",
    "normaliser beside": "loss = F.nll_loss(z, y) + torch.logsumexp(z, 1).mean()",
    "values of actions": "q = -F.nll_loss(z, y, reduction='none'); loss = ((q - binary) ** 2).mean()",
    "entropy of a policy": "p = z.softmax(1); loss = (p * p.log()).sum(1).mean()",
    "mixed with another head": "g = z.softmax(1); loss = F.cross_entropy(g * model.head(model.body(x)), y)",
    "policy from probabilities": "loss = -torch.distributions.Categorical(probs=z.softmax(1)).log_prob(y).mean()",
    "overlap of probabilities": "p = z.sigmoid(); loss = 1 - 2 * (p * one_hot).sum() / (p.sum() + one_hot.sum())",
    "a rate's logarithm": "loss = F.poisson_nll_loss(z[:, 0], binary)",
    "a rate as such": "loss = F.poisson_nll_loss(F.softplus(z[:, 0]), binary, log_input=False)",
    "intensity": "loss = -(z.clamp(1e-3, 1).log() * one_hot).sum(1).mean()",
    "alignment": (
        "loss = F.ctc_loss(z[:6, None].log_softmax(2), torch.tensor([[1, 2]]), torch.tensor([6]), torch.tensor([2]))"
    ),
}


def found(line: str, folder: Path) -> tuple[list[Finding], int]:
    run = watch(HEAD + "    " + line + TAIL, folder)
    wanted = "F.softmax(scores" if "squashed" in line else line[:60]
    return loss_activation_mismatch.rule(run.session.recording), run.line_of(wanted)


@pytest.mark.parametrize("spelling", FAULTY)
def test_a_wrong_form_is_found_at_its_line(spelling: str, tmp_path: Path) -> None:
    findings, line = found(FAULTY[spelling], tmp_path)
    assert [item.where.line for item in findings] == [line], findings
    assert findings[0].evidence["calls seen"] == 2


@pytest.mark.parametrize("spelling", RIGHT)
def test_a_right_form_gets_nothing(spelling: str, tmp_path: Path) -> None:
    findings, _ = found(RIGHT[spelling], tmp_path)
    assert findings == []


def test_the_smallest_possible_loss_is_told(tmp_path: Path) -> None:
    findings, _ = found(FAULTY["inline"], tmp_path)
    assert findings[0].evidence["smallest loss possible"] == pytest.approx(0.5514, abs=1e-3)
    assert "0.551" in findings[0].summary and findings[0].where.op == "softmax"
