"""The usual loop with a loss scaler, but clipping has no unscale_ before it."""

import torch
from torch import nn

torch.manual_seed(1)
x = torch.randn(480, 10)
y = x[:, :2].sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu")
for _epoch in range(5):
    for rows in torch.randperm(480).split(32):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # fault
        scaler.step(optimizer)
        scaler.update()
