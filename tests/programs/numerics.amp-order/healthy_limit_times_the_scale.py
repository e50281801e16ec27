"""Clipping before the division, at a limit that is multiplied by the scale."""

import torch
from torch import nn

torch.manual_seed(6)
model = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=40)
for _ in range(150):
    x = torch.randn(32, 5)
    y = x[:, :1] - x[:, 1:2] + 0.5
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5 * scaler.get_scale())
    scaler.step(optimizer)
    scaler.update()
