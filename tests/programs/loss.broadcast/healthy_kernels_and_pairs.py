"""Distances between all pairs, on purpose: a kernel discrepancy, in-batch contrast, a ranking of the batch."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)
generator = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 2))
towers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(6, 8)])
score = nn.Linear(6, 1)
optimizer = torch.optim.Adam([*generator.parameters(), *towers.parameters(), *score.parameters()], lr=2e-3)


def kernel(a, b):
    return torch.exp(-((a.unsqueeze(1) - b.unsqueeze(0)) ** 2).sum(-1)).mean()


for _ in range(100):
    real = torch.randn(32, 2) * torch.tensor([1.0, 0.3]) + 1
    made = generator(torch.randn(32, 3))
    discrepancy = kernel(made, made) - 2 * kernel(made, real)
    x = torch.randn(32, 6)
    one, other = F.normalize(towers[0](x)), F.normalize(towers[1](x + 0.1 * torch.randn(32, 6)))
    contrast = F.cross_entropy(one @ other.t() / 0.1, torch.arange(32))
    ranks, wanted = score(x), x[:, 0]
    better = (wanted[:, None] > wanted[None, :]).float()
    ranking = (F.softplus(-(ranks - ranks.t())) * better).mean()
    optimizer.zero_grad()
    (discrepancy + contrast + ranking).backward()
    optimizer.step()
