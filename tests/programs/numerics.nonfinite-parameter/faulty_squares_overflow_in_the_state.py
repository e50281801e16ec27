"""Gradients of 1e21 are finite, their squares in the optimiser's second moment are not."""

import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x, unit):
        return self.net(x) * unit


def train(model):
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step in range(30):
        unit = 1e11 if step == 12 else 1.0
        x = torch.randn(16, 4)
        loss = nn.functional.mse_loss(model(x, unit), x[:, :1] * unit)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # fault


torch.manual_seed(3)
train(Scaled())
