"""A scaler by hand: gradients are multiplied by the inverse scale, clipped, and taken by the plain step."""

import torch
from torch import nn

torch.manual_seed(8)
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scale = 2.0**12
for _ in range(150):
    x = torch.randn(32, 6)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        made = model(x)
    loss = nn.functional.mse_loss(made.float(), x[:, :1] + 1.0)
    (scale * loss).backward()
    for parameter in model.parameters():
        parameter.grad.div_(scale)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
