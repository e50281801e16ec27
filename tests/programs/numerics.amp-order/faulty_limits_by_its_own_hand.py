"""Gradients are brought to a norm of one by the program's own loop, while the scaler has still multiplied them."""

import torch
from torch import nn


def limit_norm(parameters, most):
    gradients = [item.grad for item in parameters if item.grad is not None]
    total = torch.sqrt(sum(item.pow(2).sum() for item in gradients))
    if total > most:
        for item in gradients:
            item.mul_(most / total)  # fault


torch.manual_seed(8)
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
for _ in range(60):
    x = torch.randn(32, 6)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        made = model(x)
    scaler.scale(nn.functional.mse_loss(made.float(), x[:, :1] + 1.0)).backward()
    limit_norm(list(model.parameters()), 1.0)
    scaler.step(optimizer)  # fault
    scaler.update()
