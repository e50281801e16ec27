"""Unstandardised columns that don't hurt: a few steps and the loss is where it should be."""

import torch
from torch import nn

torch.manual_seed(5)
torch.set_num_threads(1)
x = torch.randn(512, 6) * torch.tensor([30.0, 25.0, 20.0, 40.0, 35.0, 30.0])
y = ((x[:, 0] + x[:, 1]) > 0).long()
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(12):
    for rows in torch.randperm(512).split(32):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
