"""A divergence to the standard normal that is written with variances, with the sign of their logarithm turned."""

import torch
from torch import nn

torch.manual_seed(4)
data = torch.randn(800, 3) @ torch.randn(3, 12)
encoder = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 6))
decoder = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 12))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
for _epoch in range(16):
    for rows in torch.randperm(800).split(40):
        mean, log_variance = encoder(data[rows]).chunk(2, dim=1)
        code = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        error = (decoder(code) - data[rows]).pow(2).sum(1)
        divergence = -0.5 * (1 - log_variance - mean.pow(2) - log_variance.exp()).sum(1)  # fault
        loss = (error + divergence).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
