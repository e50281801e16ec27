"""A recurrent network whose every step is clipped, and which learns: the limit is its step."""

import torch
from torch import nn


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
for _ in range(300):
    x = torch.randn(24, 8, 2)
    loss = 10 * nn.functional.mse_loss(model(x), x.sum((1, 2)).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
