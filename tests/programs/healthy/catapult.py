"""A rate above the first curvature: loss and gradient rise for some steps, then settle where it is flatter."""

import torch
from torch import nn

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 1))
x = torch.randn(128, 8)
y = 0.3 * x.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.16)
for _ in range(300):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
