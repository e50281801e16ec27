"""The optimiser object only holds the rate that a schedule changes; the update is written by hand."""

import torch
from torch import nn

torch.manual_seed(6)
model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
holder = torch.optim.SGD(model.parameters(), lr=0.1)
weights = torch.randn(6, 1)
for step in range(150):
    x = torch.randn(32, 6)
    loss = (model(x) - x @ weights).pow(2).mean()
    model.zero_grad()
    loss.backward()
    holder.param_groups[0]["lr"] = 0.1 / (1 + 0.01 * step)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-holder.param_groups[0]["lr"])
