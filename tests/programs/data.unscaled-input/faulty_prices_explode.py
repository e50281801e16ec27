"""Flats with their area in square feet and their year: plain gradient descent ends in infinity within a few steps."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
area, year = 500 + 2000 * torch.rand(480, 1), torch.randint(1900, 2020, (480, 1)).float()
flats = torch.cat([area, year, torch.rand(480, 3)], 1)  # fault
price = (area - 1500) / 600 + (year - 1960) / 35 + 0.1 * torch.randn(480, 1)
loader = DataLoader(TensorDataset(flats, price), batch_size=48, shuffle=True)
model = nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(6):
    for rows, wanted in loader:
        loss = nn.functional.mse_loss(model(rows), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
