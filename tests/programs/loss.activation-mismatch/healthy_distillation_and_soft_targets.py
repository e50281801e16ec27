"""Soft targets, a divergence between distributions, mixed-up labels, a scaled cosine head: all as they should be."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(1)
teacher = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5)).requires_grad_(False)
with torch.no_grad():
    teacher[-1].weight *= 8
student = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5))
cosine = nn.Linear(24, 5, bias=False)
optimizer = torch.optim.Adam([*student.parameters(), *cosine.parameters()], lr=2e-3)
for _ in range(120):
    x = torch.randn(48, 12)
    with torch.no_grad():
        told = F.softmax(teacher(x) / 2, dim=-1)
        hard = F.one_hot(told.argmax(-1), 5).float()
        share = torch.rand(1)
    features = student[:2](x)
    scores = student[2](features)
    near = F.linear(F.normalize(features), F.normalize(cosine.weight))
    loss = F.kl_div(F.log_softmax(scores / 2, -1), told, reduction="batchmean")
    loss = loss + F.cross_entropy(scores, share * hard + (1 - share) * told)
    loss = loss + F.cross_entropy(16 * near, told.argmax(-1))
    loss = loss + F.nll_loss(F.log_softmax(scores, -1), told.argmax(-1))
    loss = loss + F.binary_cross_entropy(torch.sigmoid(scores[:, 0]), told[:, 0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
