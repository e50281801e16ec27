"""A sum of errors over samples whose targets are noise: it stands where it began."""

import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(1600, 5), torch.randn(1600, 4)
model = nn.Linear(5, 4)
nn.init.zeros_(model.weight)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _epoch in range(5):
    for rows in torch.randperm(1600).split(50):
        loss = ((model(x[rows]) - y[rows]) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
