"""Channel attention with a group normalisation of one channel per group on a map of one place: it erases its input."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(4)


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down = nn.Conv2d(channels, 8, 1)
        self.norm = nn.GroupNorm(8, 8)  # fault
        self.up = nn.Conv2d(8, channels, 1)

    def forward(self, x):
        weights = F.relu(self.norm(self.down(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(self.up(weights))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3)
        self.squeeze = Squeeze(16)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.squeeze(F.relu(self.conv(x))).mean((2, 3)))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(60):
    y = torch.randint(0, 2, (16,))
    x = torch.randn(16, 1, 8, 8) * (1 + y.view(-1, 1, 1, 1))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
