"""A regression in which all weights begin at 0.1; dropout tells the units apart, but only by noise."""

import torch
from torch import nn

torch.manual_seed(8)
model = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
for module in model:
    if isinstance(module, nn.Linear):
        nn.init.constant_(module.weight, 0.1)  # fault
        nn.init.zeros_(module.bias)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(60):
    x = torch.randn(64, 6)
    loss = nn.functional.mse_loss(model(x), x[:, :1] * x[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
