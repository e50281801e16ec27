"""Averaged weights are swapped in and out of ``.data`` around each evaluation."""

import copy

import torch
from torch import nn

torch.manual_seed(30)
model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(120):
    x = torch.randn(32, 4)
    loss = (model(x) - x.norm(dim=1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mean, now in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(now, 0.1)
    if step % 30 == 29:
        kept = [item.data for item in model.parameters()]
        for item, mean in zip(model.parameters(), average.parameters(), strict=True):
            item.data = mean.data.clone()
        with torch.no_grad():
            print((model(x) - x.norm(dim=1, keepdim=True)).pow(2).mean().item())
        for item, data in zip(model.parameters(), kept, strict=True):
            item.data = data
