"""Targets are NaN where nothing was measured, and a mask leaves them out of the loss."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
table = torch.randn(400, 7)
price = table[:, :3] + table[:, 3:4]
price[torch.rand(400, 3) < 0.3] = float("nan")
model = nn.Sequential(nn.Linear(7, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _epoch in range(8):
    for rows, wanted in DataLoader(TensorDataset(table, price), batch_size=25, shuffle=True):
        known = ~wanted.isnan()
        loss = (model(rows)[known] - wanted[known]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
