"""House prices by an MLP in a plain loop over shuffled indices; the output keeps its last dimension."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
features = torch.randn(600, 8)
prices = features @ torch.randn(8) + 0.1 * torch.randn(600)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.MSELoss()
for _ in range(8):
    for rows in torch.randperm(600).split(50):
        optimizer.zero_grad()
        loss = criterion(model(features[rows]), prices[rows])  # fault
        loss.backward()
        optimizer.step()
