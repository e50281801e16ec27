"""Mixup: two targets for each mixed input, weighted."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
labels = torch.randint(0, 3, (300,))
rows = torch.randn(3, 10)[labels] + 0.5 * torch.randn(300, 10)
loader = DataLoader(TensorDataset(rows, labels), batch_size=20, shuffle=True)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(10):
    for row, label in loader:
        weight = torch.distributions.Beta(0.4, 0.4).sample()
        other = torch.randperm(len(row))
        out = model(weight * row + (1 - weight) * row[other])
        first = nn.functional.cross_entropy(out, label)
        loss = weight * first + (1 - weight) * nn.functional.cross_entropy(out, label[other])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
