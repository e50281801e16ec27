"""A sum over all pixels of a batch with a rate that was found for the mean."""

import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    def forward(self, x):
        return self.net(x)


def loss_of(model, noisy, clean):
    error = model(noisy) - clean
    return error.pow(2).sum()  # fault


torch.manual_seed(1)
clean = torch.rand(256, 1, 1, 1) * torch.ones(256, 1, 16, 16)
model = Denoiser()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for _epoch in range(4):
    for rows in torch.randperm(256).split(16):
        noisy = clean[rows] + 0.2 * torch.randn(16, 1, 16, 16)
        loss = loss_of(model, noisy, clean[rows]) / 4
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 20.0)
        optimizer.step()
# also: optim.lr-too-high
