"""Each step first looks for the worst change of its inputs by a pass of another line, and clears what that leaves."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
x = torch.randn(512, 12)
y = (x[:, 0] > 0).long()
for _ in range(8):
    for chosen in torch.randperm(512).split(64):
        change = torch.zeros(len(chosen), 12, requires_grad=True)
        nn.functional.cross_entropy(net(x[chosen] + change), y[chosen]).backward()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[chosen] + 0.1 * change.grad.sign()), y[chosen])
        loss.backward()
        optimizer.step()
