"""A plateau schedule that waits for the loss to grow."""

import torch
from torch import nn


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        value = nn.functional.mse_loss(model(x), y).item()
    model.train()
    return value


def main():
    torch.manual_seed(1)
    x = torch.rand(700, 6) * 2 - 1
    y = torch.sin(3 * x[:, :1]) * x[:, 1:2] + x[:, 2:3]
    model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.1, patience=0)  # fault
    for _epoch in range(30):
        for rows in torch.arange(600).split(100):
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        plateau.step(evaluate(model, x[600:], y[600:]))


main()
