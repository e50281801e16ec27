"""Inputs that nobody reads and outputs from noise, as they should be: labels of a GAN, sample ids, masks of ones."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
points = torch.randn(320, 2) * torch.tensor([1.0, 0.2])
data = TensorDataset(points, torch.randint(0, 3, (320,)), torch.arange(320))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, count):
        return self.layers(torch.randn(count, 4))


generator, critic = Generator(), nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
first = torch.optim.Adam(generator.parameters(), lr=1e-3)
second = torch.optim.Adam(critic.parameters(), lr=1e-3)
directions = torch.randn(2, 8)
for _ in range(4):
    for real, _label, _index in DataLoader(data, batch_size=32, shuffle=True):
        fake = generator(len(real))
        second.zero_grad()
        (F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()).backward()
        second.step()
        first.zero_grad()
        sliced = (torch.sort(fake @ directions, 0).values - torch.sort(real @ directions, 0).values).pow(2).mean()
        (F.softplus(-critic(fake)).mean() + 0.1 * sliced).backward()
        first.step()
