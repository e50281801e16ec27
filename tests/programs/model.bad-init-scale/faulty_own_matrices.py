"""A character model with matrices of its own, drawn by torch.randn, and no scaling."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)


class Characters(nn.Module):
    def __init__(self, letters=27, size=32, context=3, hidden=200):
        super().__init__()
        self.table = nn.Parameter(torch.randn(letters, size))
        self.first = nn.Parameter(torch.randn(context * size, hidden))  # fault
        self.second = nn.Parameter(torch.randn(hidden, hidden))
        self.third = nn.Parameter(torch.randn(hidden, letters))

    def forward(self, letters):
        x = self.table[letters].flatten(1)
        x = F.relu(x @ self.first)
        return F.relu(x @ self.second) @ self.third


model = Characters()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for _ in range(80):
    x = torch.randint(0, 27, (64, 3))
    loss = F.cross_entropy(model(x), (x[:, 0] + 1) % 27)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
