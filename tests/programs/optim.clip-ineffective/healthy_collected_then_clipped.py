"""Gradients of four small batches are collected, then clipped once before the step."""

import torch
from torch import nn

torch.manual_seed(2)
x = torch.randn(640, 12)
y = (x[:, :4].sum(1) > 0).long()
model = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _epoch in range(6):
    for count, rows in enumerate(torch.randperm(640).split(10), 1):
        (nn.functional.cross_entropy(model(x[rows]), y[rows]) / 4).backward()
        if count % 4 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 0.2)
            optimizer.step()
            optimizer.zero_grad()
