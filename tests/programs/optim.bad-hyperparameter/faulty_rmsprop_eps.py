"""RMSprop with an eps of ten."""

import torch
from torch import nn


def main():
    torch.manual_seed(1)
    x = torch.randn(700, 1, 24)
    y = x[:, 0, 3:4] - x[:, 0, 9:10] + 2.0
    net = nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(176, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, eps=100.0)  # fault
    for _epoch in range(10):
        for rows in torch.randperm(700).split(35):
            loss = nn.functional.smooth_l1_loss(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
