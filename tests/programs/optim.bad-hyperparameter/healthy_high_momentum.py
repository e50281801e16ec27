"""A momentum of 0.98 with a rate that fits, and gradients of ten batches gathered."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(3200, 8)
y = (x[:, :2].sum(1) > 0).long()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=5e-3, momentum=0.98)
for _epoch in range(4):
    for index, rows in enumerate(torch.randperm(3200).split(8)):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows]) / 10
        loss.backward()
        if (index + 1) % 10 == 0:
            optimizer.step()
            optimizer.zero_grad()
