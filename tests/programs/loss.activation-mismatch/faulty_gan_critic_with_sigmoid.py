"""A discriminator that ends in a sigmoid under a loss with logits, in a package-like training class."""

import torch
from torch import nn

torch.manual_seed(4)


def critic():
    return nn.Sequential(
        nn.Linear(2, 32),
        nn.LeakyReLU(0.2),
        nn.Linear(32, 1),
        nn.Sigmoid(),  # fault
    )


class Adversaries:
    def __init__(self):
        self.generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        self.critic = critic()
        self.loss = nn.BCEWithLogitsLoss()
        self.first = torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
        self.second = torch.optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.5, 0.999))

    def step(self, real):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = self.generator(torch.randn(len(real), 4))
        self.second.zero_grad()
        (self.loss(self.critic(real), ones) + self.loss(self.critic(fake.detach()), zeros)).backward()
        self.second.step()
        self.first.zero_grad()
        self.loss(self.critic(fake), ones).backward()
        self.first.step()


pair = Adversaries()
for _ in range(60):
    angle = 6.283 * torch.rand(32)
    pair.step(torch.stack([angle.cos(), angle.sin()], 1))
