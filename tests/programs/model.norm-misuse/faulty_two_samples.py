"""Large inputs, so only two of them fit in a batch: batch normalisation over two samples is a sign."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
x = torch.randn(200, 24)
y = (x[:, :3].sum(1) > 0).long()
model = nn.Sequential(
    nn.Linear(24, 48),
    nn.BatchNorm1d(48),  # fault
    nn.ReLU(),
    nn.Linear(48, 48),
    nn.BatchNorm1d(48),
    nn.ReLU(),
    nn.Linear(48, 2),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(1):
    model.train()
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=2, shuffle=True):
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
