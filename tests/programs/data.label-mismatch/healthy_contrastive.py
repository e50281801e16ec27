"""Contrastive learning: every target is the place of its own pair, and with one positive in front always 0."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
base = torch.randn(320, 8)
loader = DataLoader(
    TensorDataset(base + 0.1 * torch.randn(320, 8), base + 0.1 * torch.randn(320, 8)), batch_size=32, shuffle=True
)
encoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
optimizer = torch.optim.Adam(encoder.parameters(), lr=2e-3)
for epoch in range(10):
    for one, other in loader:
        a, b = nn.functional.normalize(encoder(one)), nn.functional.normalize(encoder(other))
        positive = (a * b).sum(1, keepdim=True)
        negative = a @ b.roll(1, 0).T
        negative = negative - 2 * torch.eye(len(a)).roll(1, 0)
        logits = torch.cat([positive, negative], 1) / 0.2
        loss = nn.functional.cross_entropy(logits, torch.zeros(len(a), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
