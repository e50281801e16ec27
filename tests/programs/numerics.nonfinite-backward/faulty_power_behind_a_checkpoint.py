"""The layers run in a checkpoint; behind it a brightness of 0 is raised to a power below 1 in an untaken branch."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def tone(linear):
    return torch.where(linear <= 0.003, 12.9 * linear, 1.05 * linear ** (1 / 2.4) - 0.05)  # fault


def render(field, points):
    density, shade = checkpoint(field, points, use_reentrant=False).unbind(-1)
    return (torch.relu(density - 0.4) * torch.sigmoid(shade)).mean(1)


torch.manual_seed(2)
field = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(field.parameters(), lr=5e-3)
for _ in range(40):
    points = torch.rand(64, 3, 2) * 2 - 1
    loss = (tone(render(field, points)) - 0.5).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
