"""Gradients of a hundred batches are gathered for each step, in a run of six hundred batches."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATE = 100
torch.manual_seed(2)
x = torch.randn(800, 10)
y = x @ torch.randn(10, 1) + 3.0
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _epoch in range(6):
    for index, (rows, value) in enumerate(DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)):
        loss = nn.functional.mse_loss(model(rows), value) / ACCUMULATE
        loss.backward()
        if (index + 1) % ACCUMULATE == 0:
            optimizer.step()  # fault
            optimizer.zero_grad()
