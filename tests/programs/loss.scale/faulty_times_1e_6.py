"""A loss in metres made kilometres twice: gradients are a millionth, and SGD stands still."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(640, 8)
y = x @ torch.randn(8, 2) + 1.0
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _epoch in range(8):
    for rows, place in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        loss = nn.functional.mse_loss(model(rows), place) * 1e-6  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
# also: optim.lr-too-low
