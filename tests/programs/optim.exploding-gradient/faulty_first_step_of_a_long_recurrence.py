"""A recurrence over sixty steps that begins as the identity: its first step is many times as large as the weights."""

# also: optim.lr-too-high

import torch
from torch import nn

torch.manual_seed(0)
width = 64
inwards, turn, outwards = nn.Linear(2, width), nn.Linear(width, width, bias=False), nn.Linear(width, 1)
nn.init.eye_(turn.weight)
parameters = [*inwards.parameters(), *turn.parameters(), *outwards.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
for _ in range(60):
    x = torch.rand(32, 60, 2)
    h = torch.zeros(32, width)
    for t in range(60):
        h = torch.relu(inwards(x[:, t]) + turn(h))
    loss = (outwards(h).squeeze(-1) - x[:, :, 0].mean(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()  # fault
    optimizer.step()  # fault
