"""Convolutions that all begin as the same averaging filter, written into the weights' data."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(4)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(1, 16, 3, padding=1)
        self.two = nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 4)
        with torch.no_grad():
            for layer in (self.one, self.two, self.head):
                layer.weight.fill_(1.0 / layer.weight[0].numel())  # fault
                layer.bias.zero_()

    def forward(self, x):
        x = F.relu(self.two(F.relu(self.one(x))))
        return self.head(x.mean((2, 3)))


model = Small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(60):
    y = torch.randint(0, 4, (32,))
    x = torch.randn(32, 1, 8, 8) * (0.5 + y.view(-1, 1, 1, 1))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
