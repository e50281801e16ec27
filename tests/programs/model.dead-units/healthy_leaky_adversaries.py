"""A generator and a critic with leaky and other one-sided functions that let gradients through where they are low."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(7)
generator = nn.Sequential(nn.Linear(4, 32), nn.ELU(), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
nn.init.constant_(generator[2].bias, -4.0)
left = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
right = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
for _ in range(100):
    real = torch.randn(48, 2) * 0.1 + torch.tensor([1.0, -1.0])
    fake = generator(torch.randn(48, 4))
    loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
    right.zero_grad()
    loss.backward()
    right.step()
    loss = F.softplus(-critic(fake)).mean()
    left.zero_grad()
    loss.backward()
    left.step()
