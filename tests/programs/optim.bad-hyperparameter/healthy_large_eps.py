"""Adam with an eps of 1e-3, as some reinforcement learning code has it: it learns."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(600, 8)
y = x[:, :1] * x[:, 1:2]
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, eps=1e-3, betas=(0.5, 0.999))
for _epoch in range(20):
    for rows in torch.randperm(600).split(30):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
