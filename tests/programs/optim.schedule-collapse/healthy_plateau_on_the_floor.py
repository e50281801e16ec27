"""A plateau schedule takes the rate away early, for the loss stands on the floor that its noise leaves."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(1200, 5)
y = 0.4 * x[:, :1] + torch.randn(1200, 1)
model = nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=1)
for _epoch in range(25):
    total = 0.0
    for rows in torch.randperm(1200).split(60):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    plateau.step(total)
