"""One batch arrives in another unit, a million times too large, and its step destroys the weights for good."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(250):
    x = torch.randn(32, 8)
    y = x[:, :3].sum(1, keepdim=True)
    if step == 150:
        y = y * 1e6
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
