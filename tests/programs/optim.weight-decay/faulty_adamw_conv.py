"""AdamW whose decoupled decay of 100 takes a third of each weight at every step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build():
    return nn.Sequential(
        nn.Conv1d(1, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5), nn.ReLU(), nn.Flatten(), nn.Linear(384, 3)
    )


torch.manual_seed(1)
kinds = torch.randint(0, 3, (600,))
time = torch.linspace(0, 1, 32)
waves = torch.sin(6.28 * (2 + 2 * kinds[:, None]) * time + 6.28 * torch.rand(600, 1)) + 0.3 * torch.randn(600, 32)
net = build()
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=100.0)  # fault
for _epoch in range(8):
    for wave, kind in DataLoader(TensorDataset(waves[:, None], kinds), batch_size=30, shuffle=True):
        loss = nn.functional.cross_entropy(net(wave), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
