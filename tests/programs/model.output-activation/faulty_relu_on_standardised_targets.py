"""Melting points, standardised, from fingerprints; a helper that builds blocks puts a ReLU behind every layer."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def block(wide, out):
    return nn.Sequential(
        nn.Linear(wide, out),
        nn.ReLU(),  # fault
    )


x = (torch.rand(640, 24) > 0.7).float()
y = x @ torch.randn(24)
y = ((y - y.mean()) / y.std()).unsqueeze(1)
model = nn.Sequential(block(24, 32), block(32, 32), block(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = nn.MSELoss()
for _ in range(6):
    for rows, targets in DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True):
        optimizer.zero_grad()
        criterion(model(rows), targets).backward()
        optimizer.step()
