"""Twelve layers without normalisation, initialised a little too large, trained without clipping."""

import torch
from torch import nn

torch.manual_seed(3)
layers = []
for _ in range(12):
    linear = nn.Linear(32, 32)
    nn.init.normal_(linear.weight, std=0.19)
    layers += [linear, nn.LeakyReLU(0.5)]
model = nn.Sequential(nn.Linear(8, 32), *layers, nn.Linear(32, 1))
x = torch.randn(400, 8)
y = x.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(500):
    batch = torch.randint(0, 400, (40,))
    loss = nn.functional.mse_loss(model(x[batch]), y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
