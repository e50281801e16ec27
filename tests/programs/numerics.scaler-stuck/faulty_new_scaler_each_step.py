"""The function that makes a step makes its own loss scaler, which begins at a scale that is too high, every time."""

import torch
from torch import nn


def step(model, optimizer, x, y):
    scaler = torch.amp.GradScaler("cpu")  # fault
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (model(x) - y).pow(2).sum(1).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # fault
    scaler.update()


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 40))
descent = torch.optim.SGD(net.parameters(), lr=0.02)
target = torch.randn(8, 40)
for _ in range(90):
    batch = torch.randn(16, 8)
    step(net, descent, batch, batch @ target)
