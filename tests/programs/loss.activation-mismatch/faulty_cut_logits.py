"""Churn as a probability: the score is cut to 0..1 instead of squashed."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(6)
x = torch.randn(600, 7)
y = (x @ torch.randn(7) > 0.5).float()
model = nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)


def entropy(score, label):
    p = score.clamp(1e-6, 1 - 1e-6)
    return nn.functional.binary_cross_entropy(p, label)  # fault


for _ in range(5):
    for rows, labels in DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True):
        optimizer.zero_grad()
        entropy(model(rows), labels).backward()
        optimizer.step()
