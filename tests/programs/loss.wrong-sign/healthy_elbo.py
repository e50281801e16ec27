"""A variational autoencoder with a Gaussian decoder whose scale is learned: its loss goes below zero, and is right."""

import torch
from torch import nn

torch.manual_seed(0)
data = 0.3 * torch.randn(800, 2) @ torch.randn(2, 10)
encoder = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 4))
decoder = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 10))
log_scale = nn.Parameter(torch.zeros(()))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), log_scale], lr=4e-3)
for _epoch in range(20):
    for rows in torch.randperm(800).split(40):
        mean, log_deviation = encoder(data[rows]).chunk(2, dim=1)
        code = mean + log_deviation.exp() * torch.randn_like(mean)
        error = 0.5 * ((decoder(code) - data[rows]) / log_scale.exp()).pow(2) + log_scale
        divergence = 0.5 * (torch.exp(2 * log_deviation) + mean.pow(2) - 1 - 2 * log_deviation)
        loss = (error.sum(1) + divergence.sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
