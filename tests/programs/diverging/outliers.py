"""Linear regression with momentum in which one sensor sometimes reports in other units, without clipping."""

import torch
from torch import nn

torch.manual_seed(6)
x = torch.randn(1000, 8)
y = x[:, :1] - 2 * x[:, 1:2] + 0.1 * torch.randn(1000, 1)
x[500:, 3] *= torch.where(torch.rand(500) < 0.2, 40.0, 1.0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(4):
    for start in range(0, 1000, 20):
        loss = nn.functional.mse_loss(model(x[start : start + 20]), y[start : start + 20])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
