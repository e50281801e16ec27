"""A strong decay on purpose: few samples, many inputs, mostly noise; the loss rests where ridge regression does."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(320, 40)
y = x[:, :1] + 0.5 * torch.randn(320, 1)
model = nn.Linear(40, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=0.5)
for _epoch in range(25):
    for rows in torch.randperm(320).split(32):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
