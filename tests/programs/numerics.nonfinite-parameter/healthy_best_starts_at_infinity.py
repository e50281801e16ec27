"""A buffer of the model starts at infinity and keeps the lowest loss; Adam's state stays finite."""

import math

import torch
from torch import nn


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
        self.register_buffer("best", torch.tensor(math.inf))

    def forward(self, x, y):
        loss = nn.functional.mse_loss(self.net(x), y)
        self.best = torch.minimum(self.best, loss.detach())
        return loss


torch.manual_seed(1)
model = Remembers()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(150):
    x = torch.randn(32, 6)
    optimizer.zero_grad()
    model(x, x[:, :1] * x[:, 1:2].sign()).backward()
    optimizer.step()
