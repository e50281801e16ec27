"""A factor of 1e-4 on the loss, which Adam doesn't mind."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(640, 8)
y = (x[:, :2].sum(1) > 0).long()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _epoch in range(10):
    for rows in torch.randperm(640).split(32):
        loss = 1e-4 * nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
