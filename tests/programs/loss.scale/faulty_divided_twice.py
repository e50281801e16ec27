"""The mean over a batch is divided by the number of all samples once more, in a helper."""

import torch
from torch import nn

SAMPLES = 2000


def average_loss(logits, labels):
    return nn.functional.cross_entropy(logits, labels) / SAMPLES  # fault


def main():
    torch.manual_seed(2)
    x = torch.randn(SAMPLES, 10)
    y = (x[:, :5] > 0).sum(1).clamp(max=4)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _epoch in range(6):
        for rows in torch.randperm(SAMPLES).split(50):
            loss = average_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
# also: optim.lr-too-low
