"""A warm-up over a third of the run, from a rate of almost nothing."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(640, 10)
y = (x[:, :2].sum(1) > 0).long()
model = nn.Sequential(nn.Linear(10, 48), nn.GELU(), nn.Linear(48, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))
for _epoch in range(15):
    for rows in torch.randperm(640).split(32):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
