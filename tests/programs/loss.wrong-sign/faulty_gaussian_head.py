"""A density network that minimises the log-probability of a distribution object."""

import torch
from torch import nn


class Density(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.ReLU())
        self.mean = nn.Linear(32, 1)
        self.scale = nn.Linear(32, 1)

    def forward(self, x):
        h = self.body(x)
        return torch.distributions.Normal(self.mean(h), nn.functional.softplus(self.scale(h)) + 0.1)


def main():
    torch.manual_seed(3)
    x = torch.randn(600, 4)
    y = x[:, :1] + 0.3 * torch.randn(600, 1)
    model = Density()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _epoch in range(10):
        for rows in torch.randperm(600).split(30):
            loss = model(x[rows]).log_prob(y[rows]).mean()  # fault
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
