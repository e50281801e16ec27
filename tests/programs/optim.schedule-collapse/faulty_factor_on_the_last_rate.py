"""A polynomial schedule by hand multiplies the rate of the step before, not the first one."""

import torch
from torch import nn


def lower_the_rate(optimizer, step, steps):
    for group in optimizer.param_groups:
        group["lr"] *= (1 - step / steps) ** 0.9  # fault


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
x = torch.randn(600, 2)
y = torch.bucketize(x[:, 0] * x[:, 1], torch.tensor([-0.3, 0.3]))
for step in range(300):
    lower_the_rate(optimizer, step, 300)
    chosen = torch.randint(0, 600, (32,))
    loss = nn.functional.cross_entropy(net(x[chosen]), y[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
