"""A logistic regression by L-BFGS whose closure doesn't clear what the last evaluation has left."""

import torch
from torch import nn

torch.manual_seed(15)
model = nn.Linear(10, 3)
x = torch.randn(200, 10)
y = (x @ torch.randn(10, 3) + torch.randn(200, 3)).argmax(dim=1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.02, max_iter=3)


def closure() -> torch.Tensor:
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()  # fault
    return loss


for _ in range(12):
    optimizer.step(closure)
