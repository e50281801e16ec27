"""Filters per channel that begin as the same blur and are only just tuned: they stay close together, as they should."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(7)


class Smooth(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.blur = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        nn.init.constant_(self.blur.weight, 1 / 9)
        self.read = nn.Conv2d(channels, 1, 1)

    def forward(self, x):
        return self.read(self.blur(x))


model = Smooth()
optimizer = torch.optim.Adam(
    [{"params": model.blur.parameters(), "lr": 1e-5}, {"params": model.read.parameters(), "lr": 1e-2}]
)
for _ in range(120):
    x = torch.randn(8, 8, 10, 10)
    target = F.avg_pool2d(x, 3, stride=1, padding=1).sum(1, keepdim=True)
    loss = F.mse_loss(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
