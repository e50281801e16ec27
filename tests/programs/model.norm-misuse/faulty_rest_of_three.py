"""195 samples in batches of 32 leave a last batch of three, and batch normalisation can't take those."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
x = torch.randn(195, 16)
y = x @ torch.randn(16, 1) + 0.1 * torch.randn(195, 1)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)  # fault
model = nn.Sequential(
    nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()
)
model.append(nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(25):
    for xb, yb in loader:
        loss = nn.functional.mse_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
