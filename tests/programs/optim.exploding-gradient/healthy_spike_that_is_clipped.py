"""The same bad batch, but clipping keeps its step small."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(250):
    x = torch.randn(32, 8)
    y = x[:, :3].sum(1, keepdim=True)
    if step == 150:
        y = y * 1e6
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
