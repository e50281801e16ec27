"""A generative adversarial pair in which the critic's part steps the generator's optimiser."""

import torch
from torch import nn

torch.manual_seed(4)
generator = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(critic.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()

for _step in range(60):
    real = torch.randn(32, 2) * 0.3 + torch.tensor([1.0, -1.0])
    fake = generator(torch.randn(32, 4))

    opt_d.zero_grad()
    opt_g.zero_grad()
    loss_d = bce(critic(real), torch.ones(32, 1)) + bce(critic(fake.detach()), torch.zeros(32, 1))
    loss_d.backward()
    opt_g.step()  # fault

    loss_g = bce(critic(fake), torch.ones(32, 1))
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
