"""A loss of the fourth power, whose gradient grows with the cube of the error."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 1, 3, padding=1))

    def forward(self, x):
        return self.body(x)


torch.manual_seed(6)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=2e-3, momentum=0.9)
for step in range(300):
    x = torch.randn(16, 1, 20)
    if step == 200:
        x = 15 * x
    loss = (model(x) - x.roll(1, 2)).pow(4).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
