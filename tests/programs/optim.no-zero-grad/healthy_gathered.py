"""Gradients are gathered over five passes and zeroed in place after the step."""

import torch
from torch import nn

torch.manual_seed(16)
model = nn.Sequential(nn.Linear(7, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
weights = torch.randn(7, 1)
for step in range(200):
    x = torch.randn(8, 7)
    ((model(x) - x @ weights).pow(2).mean() / 5).backward()
    if step % 5 == 4:
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad.zero_()
