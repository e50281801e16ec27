"""Gradient descent by hand in place, beside a pass over a fixed network whose gradients are only looked at."""

import torch
from torch import nn

torch.manual_seed(3)
net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
x = torch.randn(400, 2)
y = (x[:, 0] > x[:, 1]).long()
for _ in range(10):
    for chosen in torch.randperm(400).split(40):
        loss = nn.functional.cross_entropy(net(x[chosen]), y[chosen])
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.3 * p.grad
importance = {name: 0.0 for name, _ in net.named_parameters()}
for row, label in zip(x[:20], y[:20], strict=True):
    net.zero_grad()
    nn.functional.cross_entropy(net(row[None]), label[None]).backward()
    for name, p in net.named_parameters():
        importance[name] += float(p.grad.pow(2).sum())
