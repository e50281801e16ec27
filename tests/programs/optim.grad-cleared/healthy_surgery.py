"""Gradients of two tasks are computed one after the other, cleared in between, combined, and put back."""

import torch
from torch import nn

torch.manual_seed(11)
trunk = nn.Sequential(nn.Linear(6, 24), nn.ReLU())
heads = nn.ModuleList([nn.Linear(24, 1), nn.Linear(24, 1)])
parameters = [*trunk.parameters(), *heads.parameters()]
optimizer = torch.optim.Adam(parameters, lr=3e-3)
for _step in range(80):
    x = torch.randn(32, 6)
    targets = [x[:, :1] * x[:, 1:2], x.sum(dim=1, keepdim=True)]
    h = trunk(x)
    found = []
    for head, target in zip(heads, targets, strict=True):
        optimizer.zero_grad()
        (head(h) - target).pow(2).mean().backward(retain_graph=True)
        found.append([torch.zeros_like(item) if item.grad is None else item.grad.clone() for item in parameters])
    dot = sum((a * b).sum() for a, b in zip(*found, strict=True))
    if dot < 0:
        norm = sum(b.pow(2).sum() for b in found[1])
        found[0] = [a - dot / norm * b for a, b in zip(*found, strict=True)]
    for item, a, b in zip(parameters, *found, strict=True):
        item.grad = a + b
    optimizer.step()
