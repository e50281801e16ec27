"""Only an image is optimised, against the features of a network that stays as it is."""

import torch
from torch import nn

torch.manual_seed(24)
features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
wanted = features(torch.rand(1, 1, 12, 12)).detach()
image = torch.rand(1, 1, 12, 12, requires_grad=True)
optimizer = torch.optim.Adam([image], lr=0.05)
for _step in range(60):
    loss = (features(image) - wanted).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
