"""Cosine restarts: the rate jumps back up, loss and gradient with it."""

import torch
from torch import nn

torch.manual_seed(7)
x = torch.randn(400, 10)
y = (x[:, 0] * x[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 120)
for _ in range(365):
    batch = torch.randint(0, 400, (50,))
    loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
