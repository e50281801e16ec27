"""Eight narrow layers of hard sigmoids between inputs and a product that the last ones cannot find."""

import torch
from torch import nn

torch.manual_seed(3)
layers = []
for _ in range(8):
    layers += [nn.Linear(12, 12), nn.Hardsigmoid()]
model = nn.Sequential(*layers, nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(150):
    x = torch.randn(32, 12)
    y = x[:, :1] * x[:, 1:2]
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
