"""Squeeze and excitation with two hidden units, both off for every sample: the gate stays at a constant."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(8)


class Gate(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down, self.up = nn.Linear(channels, 2), nn.Linear(2, channels)
        nn.init.constant_(self.down.bias, -2.0)

    def forward(self, x):
        weights = torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3))))))
        return x * weights[:, :, None, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.gate, self.head = nn.Conv2d(1, 16, 3), Gate(16), nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.gate(F.relu(self.conv(x))).mean((2, 3)))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(80):
    y = torch.randint(0, 2, (24,))
    x = torch.randn(24, 1, 8, 8) * (1 + y.view(-1, 1, 1, 1))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
