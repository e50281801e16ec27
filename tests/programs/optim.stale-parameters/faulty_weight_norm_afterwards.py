"""Weight normalisation is applied when the optimiser has the plain weights already."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(27)
net = nn.Sequential(nn.Conv1d(1, 12, 5, padding=2), nn.ReLU(), nn.Conv1d(12, 1, 5, padding=2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for layer in (net[0], net[2]):
    weight_norm(layer)  # fault
for _step in range(60):
    x = torch.randn(16, 1, 24)
    loss = (net(x) - x.cumsum(dim=2) * 0.2).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
