"""The same large squares, but made in float32: only the layers run in float16."""

import torch
from torch import nn

torch.manual_seed(2)
model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
for _ in range(80):
    x = torch.rand(16, 3) * 2000
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        made = model(x / 1000)
    sizes = (1000 * made.float()).pow(2).mean(1)
    loss = (sizes.add(1).log() - x.pow(2).mean(1).add(1).log()).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
