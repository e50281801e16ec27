"""Targets that are mostly noise: the loss jumps around its floor from the first epoch on."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(900, 6)
y = 0.3 * x[:, :1] + torch.randn(900, 1) * torch.randint(1, 5, (900, 1))
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _epoch in range(8):
    for rows in torch.randperm(900).split(18):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
