"""An autoencoder whose ten narrow layers end in sigmoids, trained by a function with momentum."""

import itertools

import torch
from torch import nn


def build(sizes):
    layers = []
    for wide, narrow in itertools.pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.Sigmoid()]
    return nn.Sequential(*layers[:-1])


def train(model, x, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    for _epoch in range(epochs):
        for rows in torch.randperm(len(x)).split(40):
            loss = nn.functional.mse_loss(model(x[rows]), x[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


torch.manual_seed(6)
code = torch.rand(400, 3)
x = torch.sin(2 * code @ torch.randn(3, 20))
x = (x - x.mean(0)) / x.std(0)
train(build([20, 18, 16, 14, 12, 8, 12, 14, 16, 18, 20]), x, epochs=12)
