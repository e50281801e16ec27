"""A network whose weights were all set to zero 'to start neutral'."""

import torch
from torch import nn

torch.manual_seed(1)


def neutral(module):
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.weight)  # fault
        nn.init.zeros_(module.bias)


model = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3)).apply(neutral)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(80):
    x = torch.randn(64, 5)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
