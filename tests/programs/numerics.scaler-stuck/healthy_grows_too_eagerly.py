"""A scaler that doubles its scale every fifth step, so that it skips a step now and then."""

import torch
from torch import nn


def train(model, scaler, steps=200):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        y = torch.randint(0, 2, (16,))
        x = torch.randn(16, 8) + y[:, None]
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(x)
        scaler.scale(nn.functional.cross_entropy(logits.float(), y)).backward()
        scaler.step(optimizer)
        scaler.update()


torch.manual_seed(4)
train(
    nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)),
    torch.amp.GradScaler("cpu", init_scale=2.0**15, growth_interval=5),
)
