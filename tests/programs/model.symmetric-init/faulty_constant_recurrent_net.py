"""A sequence classifier in which every parameter begins at 0.05."""

import torch
from torch import nn

torch.manual_seed(3)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.reader = nn.GRU(4, 24, batch_first=True)
        self.head = nn.Linear(24, 2)
        for parameter in self.parameters():
            nn.init.constant_(parameter, 0.05)  # fault

    def forward(self, x):
        _, last = self.reader(x)
        return self.head(last[0])


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(60):
    x = torch.randn(32, 6, 4)
    y = (x[:, 0, 0] * x[:, 1, 1] > 0).long()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
