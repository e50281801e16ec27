"""Adagrad with an eps of 0: filters that get no gradient are divided by the root of nothing."""

import torch
from torch import nn


def main():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 2))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2, eps=0.0)
    for _ in range(20):
        pictures = torch.rand(8, 3, 8, 8)
        pictures[:, 2] = 0.0
        kinds = (pictures[:, 0].mean((1, 2)) > pictures[:, 1].mean((1, 2))).long()
        loss = nn.functional.cross_entropy(model(pictures), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # fault


main()
