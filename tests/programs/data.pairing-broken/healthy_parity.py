"""Parity of ten bits: neither a line nor neighbours can tell it, a network can."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
bits = ((torch.arange(256)[:, None] >> torch.arange(8)) & 1).float()
parity = bits.sum(1).long() % 2
order = torch.randperm(256)
loader = DataLoader(TensorDataset(2 * bits[order] - 1, parity[order]), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(40):
    for row, label in loader:
        loss = nn.functional.cross_entropy(model(row), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
