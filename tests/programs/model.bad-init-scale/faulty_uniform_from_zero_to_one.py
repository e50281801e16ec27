"""Weights by nn.init.uniform_ with its defaults, which are 0 and 1, in a set model that adds up its elements."""

import torch
from torch import nn

torch.manual_seed(6)


class Sets(nn.Module):
    def __init__(self, size=5, hidden=96):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.all = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1))
        for name, parameter in self.named_parameters():
            if name.endswith("weight"):
                nn.init.uniform_(parameter)  # fault
            else:
                nn.init.zeros_(parameter)

    def forward(self, x):
        return self.all(self.each(x).mean(1))


model = Sets()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(80):
    x = torch.randn(32, 7, 5)
    loss = nn.functional.mse_loss(model(x), x[:, :, :1].amax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
