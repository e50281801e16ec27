"""Many predictions for each target broadcast against it, sample by sample: quantiles, a mixture, an ensemble."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(7)
x = torch.randn(640, 5)
y = x[:, 0] + 0.3 * torch.randn(640)
levels = torch.tensor([0.1, 0.5, 0.9])
body = nn.Sequential(nn.Linear(5, 24), nn.ReLU())
quantiles, members, mixture = nn.Linear(24, 3), nn.Linear(24, 32), nn.Linear(24, 6)
weights = [*body.parameters(), *quantiles.parameters(), *members.parameters(), *mixture.parameters()]
optimizer = torch.optim.Adam(weights, lr=2e-3)
for _ in range(5):
    for rows, target in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        hidden = body(rows)
        column = target.unsqueeze(1)
        off = column - quantiles(hidden)
        pinball = torch.maximum(levels * off, (levels - 1) * off).mean()
        together = ((members(hidden) - column) ** 2).mean()
        mean, spread = mixture(hidden).chunk(2, dim=1)
        likelihood = (0.5 * ((column - mean) * torch.exp(-spread)) ** 2 + spread).mean()
        optimizer.zero_grad()
        (pinball + together + likelihood).backward()
        optimizer.step()
