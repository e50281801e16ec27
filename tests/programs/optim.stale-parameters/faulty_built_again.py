"""Five folds: the model is built anew for each, the optimiser only once."""

import torch
from torch import nn

torch.manual_seed(28)


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 1))


x = torch.randn(200, 5)
y = x[:, :1] * x[:, 1:2]
model = build()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _fold in range(3):
    model = build()  # fault
    for _step in range(40):
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
