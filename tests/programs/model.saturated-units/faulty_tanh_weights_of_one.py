"""A tanh network whose weights were drawn from a standard normal distribution, whatever the number of inputs."""

# also: model.bad-init-scale
import itertools

import torch
from torch import nn

torch.manual_seed(1)


class Net(nn.Module):
    def __init__(self, sizes=(64, 128, 128, 10)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        for layer in self.layers:
            nn.init.normal_(layer.weight, 0.0, 1.0)  # fault

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
centres = torch.randn(10, 64)
for _ in range(120):
    y = torch.randint(0, 10, (32,))
    x = centres[y] + 0.8 * torch.randn(32, 64)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
