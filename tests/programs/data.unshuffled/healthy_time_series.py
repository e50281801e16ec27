"""A time series with a trend, read in order on purpose."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
time = torch.arange(600).float()
series = torch.sin(time / 12) + time / 300 + 0.05 * torch.randn(600)
windows = series.unfold(0, 13, 1)
loader = DataLoader(TensorDataset(windows[:, :12], windows[:, 12:]), batch_size=20)
model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(10):
    for window, value in loader:
        loss = nn.functional.mse_loss(model(window), value)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
