"""Adam with a rate of 1e-7 on a small table."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(600, 12)
y = (x[:, :3].sum(1) > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=30, shuffle=True)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-7)  # fault
for _epoch in range(10):
    for rows, kinds in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(rows), kinds)
        loss.backward()
        optimizer.step()
