"""Sigmoid units on raw columns (years, incomes, areas) instead of standardised ones."""

# also: data.unscaled-input
import torch
from torch import nn

torch.manual_seed(2)
columns = torch.stack([torch.rand(500) * 60 + 1950, torch.rand(500) * 9e4, torch.rand(500) * 300], 1)
scaled = (columns - columns.mean(0)) / columns.std(0)
target = scaled @ torch.tensor([[1.0], [-0.5], [0.7]])
model = nn.Sequential(
    nn.Linear(3, 24),
    nn.Sigmoid(),
    nn.Linear(24, 24),
    nn.Sigmoid(),
    nn.Linear(24, 1),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(150):
    rows = torch.randint(0, 500, (25,))
    loss = nn.functional.mse_loss(model(columns[rows]), target[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
