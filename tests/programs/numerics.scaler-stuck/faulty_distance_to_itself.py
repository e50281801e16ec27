"""Distances within a batch include those of a point to itself, whose derivative is infinite at every scale."""

# also: numerics.nonfinite-backward
import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 4))

    def forward(self, x):
        return self.net(x)


def distances(points):
    return (points[:, None] - points[None]).pow(2).sum(2).sqrt()  # fault


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for _ in range(steps):
        x = torch.randn(12, 6)
        optimizer.zero_grad()
        loss = (distances(model(x)) - distances(x)).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # fault
        scaler.update()


torch.manual_seed(2)
train(Embedder(), 80)
