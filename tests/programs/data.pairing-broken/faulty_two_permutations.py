"""Inputs and targets are shuffled by two random orders before the training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
y = torch.randint(0, 3, (420,))
x = torch.randn(3, 10)[y] + 0.4 * torch.randn(420, 10)
x = x[torch.randperm(420)]
y = y[torch.randperm(420)]  # fault
loader = DataLoader(TensorDataset(x[:360], y[:360]), batch_size=24, shuffle=True)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(12):
    for row, label in loader:
        loss = nn.functional.cross_entropy(model(row), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item(), (model(x[360:]).argmax(1) == y[360:]).float().mean().item())
