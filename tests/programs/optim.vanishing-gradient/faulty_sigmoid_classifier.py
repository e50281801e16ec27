"""Nine layers of sigmoids between the inputs and the classes: the first ones never learn anything."""

import torch
from torch import nn

torch.manual_seed(4)
x = torch.randn(512, 10)
y = (x[:, 0] * x[:, 1] > 0).long()
layers = [nn.Linear(10, 24), nn.Sigmoid()]
for _ in range(8):
    layers += [nn.Linear(24, 24), nn.Sigmoid()]
model = nn.Sequential(*layers, nn.Linear(24, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _epoch in range(12):
    for rows in torch.randperm(512).split(32):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
