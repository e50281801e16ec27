"""An adversarial pair: both optimisers were given the generator's parameters, so the critic never learns."""

import itertools

import torch
from torch import nn

torch.manual_seed(19)


class Net(nn.Module):
    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(sizes)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = nn.functional.leaky_relu(layer(x), 0.2)
        return self.layers[-1](x)


def main() -> None:
    generator, critic = Net([4, 48, 2]), Net([2, 48, 1])
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
    opt_d = torch.optim.Adam(generator.parameters(), lr=1e-3)  # fault
    bce = nn.functional.binary_cross_entropy_with_logits
    for _ in range(60):
        real, noise = torch.randn(32, 2) + 2, torch.randn(32, 4)
        opt_d.zero_grad()
        loss = bce(critic(real), torch.ones(32, 1)) + bce(critic(generator(noise).detach()), torch.zeros(32, 1))
        loss.backward()
        opt_d.step()
        opt_g.zero_grad()
        bce(critic(generator(noise)), torch.ones(32, 1)).backward()
        opt_g.step()


main()
