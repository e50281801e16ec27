"""The call stands one line too low: the step has taken the gradients already."""

import torch
from torch import nn

torch.manual_seed(2)
x = torch.randn(400, 12)
y = (x[:, :4].sum(1) > 0).long()
model = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _epoch in range(5):
    for rows in torch.randperm(400).split(20):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)  # fault
