"""Regression on all products of three columns, standardised before they are multiplied but not after."""

import torch
from torch import nn

torch.manual_seed(1)
base = torch.randn(400, 5)
pairs = torch.combinations(torch.arange(5), 3, with_replacement=True)
x = base[:, pairs].prod(2)
y = base[:, :1] ** 2 - base[:, 1:2] + 0.1 * torch.randn(400, 1)
model = nn.Linear(x.shape[1], 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(300):
    batch = torch.randint(0, 400, (64,))
    loss = nn.functional.mse_loss(model(x[batch]), y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
