"""A deep stack of sigmoids under Adam, which gives every layer a step of the same size."""

import torch
from torch import nn

torch.manual_seed(4)
x = torch.randn(512, 10)
y = x @ torch.randn(10, 1) + 2.0
layers = [nn.Linear(10, 24), nn.Sigmoid()]
for _ in range(4):
    layers += [nn.Linear(24, 24), nn.Sigmoid()]
model = nn.Sequential(*layers, nn.Linear(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _epoch in range(20):
    for rows in torch.randperm(512).split(32):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
