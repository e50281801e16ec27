"""Twelve layers without normalisation, drawn for ReLU, with a small last layer."""

import torch
from torch import nn

torch.manual_seed(4)
layers = []
for index in range(12):
    layer = nn.Linear(20 if index == 0 else 64, 64)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    layers += [layer, nn.ReLU()]
head = nn.Linear(64, 4)
nn.init.normal_(head.weight, std=1e-3)
model = nn.Sequential(*layers, head)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
centres = 1.5 * torch.randn(4, 20)
for _ in range(120):
    y = torch.randint(0, 4, (32,))
    loss = nn.functional.cross_entropy(model(centres[y] + torch.randn(32, 20)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
