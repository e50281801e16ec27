"""SGD with a weight decay of two on a regression whose targets need weights."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(800, 10)
y = x @ torch.randn(10, 1)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=2.0)  # fault
for _epoch in range(8):
    for rows in torch.randperm(800).split(40):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
