"""Passes that reach inputs only: attacks on a frozen classifier, between trainings of another one."""

import torch
from torch import nn

torch.manual_seed(52)
x = torch.randn(128, 6)
y = x[:, :3].argmax(dim=1)
first = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
second = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 3))
optimizer = torch.optim.Adam(first.parameters(), lr=3e-3)
for _step in range(60):
    loss = nn.functional.cross_entropy(first(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
first.requires_grad_(False)
optimizer = torch.optim.Adam(second.parameters(), lr=3e-3)
for _step in range(60):
    delta = torch.zeros_like(x, requires_grad=True)
    nn.functional.cross_entropy(first(x + delta), y).backward()
    attacked = x + 0.1 * delta.grad.sign()
    loss = nn.functional.cross_entropy(second(attacked), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
