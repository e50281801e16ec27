"""The critic is frozen for the generator's pass and stays so, while its optimiser goes on."""

import torch
from torch import nn

torch.manual_seed(33)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(critic.parameters(), lr=1e-3)


def toggle(network: nn.Module, on: bool) -> None:
    for parameter in network.parameters():
        parameter.requires_grad = on  # fault


for step in range(60):
    fake = generator(torch.randn(32, 4))
    loss_d = (
        nn.functional.softplus(-critic(torch.randn(32, 2) + 1)).mean()
        + nn.functional.softplus(critic(fake.detach() if step == 0 else fake)).mean()
    )
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    toggle(critic, False)  # fault
    loss_g = nn.functional.softplus(-critic(generator(torch.randn(32, 4)))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
