"""Logistic regression from zero: the first steps are infinitely large against the weights."""

import torch
from torch import nn

torch.manual_seed(1)
x = torch.randn(400, 10)
y = (x[:, 0] + x[:, 1] > 0).long()
model = nn.Linear(10, 2)
nn.init.zeros_(model.weight)
nn.init.zeros_(model.bias)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
for _ in range(200):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
