"""Batch normalisation of channels over time, layer normalisation of features, a slow momentum with enough steps."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(8)


class Sequence(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.enter = nn.Linear(4, hidden)
        self.norm = nn.BatchNorm1d(hidden, momentum=0.02)
        self.conv = nn.Conv1d(hidden, hidden, 3, padding=1)
        self.last = nn.LayerNorm(hidden)
        self.leave = nn.Linear(hidden, 2)

    def forward(self, x):
        x = self.norm(self.enter(x).transpose(1, 2))
        x = F.relu(self.conv(F.relu(x))).transpose(1, 2)
        return self.leave(self.last(x).mean(1))


model = Sequence()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(150):
    y = torch.randint(0, 2, (20,))
    x = torch.randn(20, 10, 4) + y.view(-1, 1, 1) * torch.linspace(0, 1, 10).view(1, -1, 1)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
