"""Scaled gradients are divided by the number of passes by hand, and limited by hand only after they were unscaled."""

import torch
from torch import nn

torch.manual_seed(8)
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
for _ in range(80):
    optimizer.zero_grad()
    for _ in range(2):
        x = torch.randn(32, 6)
        with torch.autocast("cpu", dtype=torch.float16):
            made = model(x)
        scaler.scale(nn.functional.mse_loss(made.float(), x[:, :1] + 1.0)).backward()
    gradients = [item.grad for item in model.parameters()]
    for item in gradients:
        item.div_(2)
    scaler.unscale_(optimizer)
    total = torch.sqrt(sum(item.pow(2).sum() for item in gradients))
    for item in gradients:
        item.mul_(torch.clamp(1.0 / total, max=1.0))
    scaler.step(optimizer)
    scaler.update()
