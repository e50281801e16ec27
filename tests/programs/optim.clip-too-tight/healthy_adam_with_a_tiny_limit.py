"""A limit of a ten-thousandth in front of Adam, which divides the factor out again."""

import torch
from torch import nn

torch.manual_seed(3)
x = torch.randn(600, 8)
y = x @ torch.randn(8, 1) + 3.0
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _epoch in range(12):
    for rows in torch.randperm(600).split(40):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-4)
        optimizer.step()
