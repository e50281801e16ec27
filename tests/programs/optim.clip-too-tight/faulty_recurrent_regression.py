"""A GRU that sums a sequence; a step is clipped by a helper whose default limit is a ten-thousandth."""

import torch
from torch import nn


def clipped_step(model, optimizer, limit=1e-4):
    nn.utils.clip_grad_norm_(list(model.parameters()), limit)  # fault
    optimizer.step()
    optimizer.zero_grad()


class Sums(nn.Module):
    def __init__(self):
        super().__init__()
        self.reader = nn.GRU(2, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.reader(x)[1][0])


torch.manual_seed(5)
model = Sums()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for _ in range(100):
    x = torch.randn(24, 8, 2)
    loss = nn.functional.mse_loss(model(x), x.sum((1, 2)).unsqueeze(1))
    loss.backward()
    clipped_step(model, optimizer)
