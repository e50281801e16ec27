"""A regression with momentum whose loss swings instead of falling; the loop is in a class."""

import torch
from torch import nn


class Regression:
    def __init__(self, inputs, width, rate):
        self.model = nn.Sequential(
            nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)  # fault

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = ((self.model(x) - y) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(1)
    x = torch.randn(800, 8)
    y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3]
    fit = Regression(8, 48, rate=1.5)
    for _epoch in range(8):
        for rows in torch.randperm(800).split(32):
            fit.step(x[rows], y[rows])


main()
