"""Each gradient is divided by its norm before the step; the branch that isn't taken has a gradient of zeros."""

import torch
from torch import nn


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.reader = nn.Linear(6, 12)
        self.branches = nn.ModuleList(nn.Linear(12, 1) for _ in range(3))

    def forward(self, x):
        h = torch.tanh(self.reader(x))
        chosen = (x[:, :1] > 0).long()  # never the third
        return sum((chosen == k).float() * branch(h) for k, branch in enumerate(self.branches))


def normalise(model):
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= p.grad.norm()  # fault


torch.manual_seed(0)
model = Branches()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for _ in range(40):
    x = torch.randn(32, 6)
    loss = (model(x) - x[:, :1] * x[:, 1:2]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    normalise(model)
    optimizer.step()
