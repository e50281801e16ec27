"""The norm is logged after the step by clipping at infinity; the clipping that acts stands before it."""

import math

import torch
from torch import nn

torch.manual_seed(7)
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
norms = []
for _ in range(120):
    x = torch.randn(32, 6)
    loss = nn.functional.mse_loss(model(x), x[:, :1] + x[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    norms.append(nn.utils.clip_grad_norm_(model.parameters(), math.inf).item())
