"""Predictions of the same input are repeated with dropout on: their spread is wanted."""

import torch
from torch import nn

torch.manual_seed(46)
model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
grid = torch.linspace(-2, 2, 50).unsqueeze(1)
for step in range(120):
    x = torch.rand(32, 1) * 2 - 1
    loss = (model(x) - x.sin()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        with torch.no_grad():
            samples = torch.stack([model(grid) for _ in range(20)])
        print(samples.std(dim=0).mean().item())
