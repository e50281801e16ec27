"""Topics from word counts: every weight of the first layers was drawn below zero, and counts are never negative."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(2)


def encoder(words, wide):
    first = nn.Linear(words, wide)
    nn.init.uniform_(first.weight, -0.2, 0.0)  # fault
    return nn.Sequential(first, nn.ReLU(), nn.Linear(wide, wide), nn.ReLU())


class Topics(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = encoder(60, 40)
        self.head = nn.Linear(40, 4)

    def forward(self, counts):
        return self.head(self.encode(counts))


rates = torch.rand(4, 60) * 3
labels = torch.randint(0, 4, (600,))
counts = torch.poisson(rates[labels])
model = Topics()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(100):
    rows = torch.arange(step * 48, step * 48 + 48) % 600
    loss = F.cross_entropy(model(counts[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
