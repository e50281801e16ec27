"""A factor that is meant for epochs is applied after every batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(900, 16)
y = (x[:, :4].pow(2).sum(1) > 4).long()
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
for _epoch in range(15):
    for rows, kinds in DataLoader(TensorDataset(x, y), batch_size=30, shuffle=True):
        loss = nn.functional.cross_entropy(model(rows), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()  # fault
