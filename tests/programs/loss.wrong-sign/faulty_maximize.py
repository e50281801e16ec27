"""maximize=True was left over from another objective."""

import torch
from torch import nn

torch.manual_seed(2)
x = torch.randn(640, 5)
y = x[:, :1] - x[:, 1:2]
model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, maximize=True)  # fault
for _epoch in range(8):
    for rows in torch.randperm(640).split(32):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
