"""SGD at a rate of two behind batch norm: large steps, and it learns."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(512, 10)
y = (x[:, 0] * x[:, 1] > 0).long()
model = nn.Sequential(
    nn.Linear(10, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64, bias=False), nn.BatchNorm1d(64),
    nn.ReLU(), nn.Linear(64, 2),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
for _epoch in range(12):
    for rows in torch.randperm(512).split(32):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
