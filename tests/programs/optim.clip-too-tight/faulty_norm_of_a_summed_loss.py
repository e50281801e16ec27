"""A summed loss has gradients in the hundreds; the limit was taken from a recipe for mean losses and made smaller."""

import torch
from torch import nn

torch.manual_seed(3)
x = torch.randn(600, 8)
y = x @ torch.randn(8, 1) + 3.0
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(10):
    for rows in torch.randperm(600).split(40):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows], reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-2)  # fault
        optimizer.step()
