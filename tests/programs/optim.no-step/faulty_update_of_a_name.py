"""Gradient descent by hand: the loop's name gets the new value, the parameter doesn't."""

import torch
from torch import nn

torch.manual_seed(3)
net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
x = torch.randn(400, 2)
y = (x[:, 0] * x[:, 1] > 0).long()
for _ in range(6):
    for chosen in torch.randperm(400).split(40):
        loss = nn.functional.cross_entropy(net(x[chosen]), y[chosen])
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p = p - 0.3 * p.grad  # fault
