"""Attention by sigmoids instead of a softmax, biased by the number of keys: nearly all weights are near 0."""

import math

import torch
from torch import nn

torch.manual_seed(7)


class Attention(nn.Module):
    def __init__(self, size=16, length=120):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, size)
        self.leave = nn.Linear(size, 1)
        self.bias = -math.log(length) - 2.0

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 4.0 + self.bias
        return self.leave(x + torch.sigmoid(scores) @ self.value(x)).squeeze(-1)


model = Attention()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(60):
    x = torch.randn(4, 120, 16)
    loss = nn.functional.mse_loss(model(x), x[:, :, 0] + x.mean((1, 2))[:, None])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
