"""A cosine over the whole run, in steps; its end is near zero, and the loss has come down long before."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(640, 10)
y = (x[:, 0] > x[:, 1]).long()
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=300)
for _epoch in range(15):
    for rows in torch.randperm(640).split(32):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
