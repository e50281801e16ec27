"""The log-probability of the right class is minimised."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(600, 10)
y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _epoch in range(8):
    for rows, kinds in DataLoader(TensorDataset(x, y), batch_size=30, shuffle=True):
        log_probability = nn.functional.log_softmax(model(rows), dim=1)
        loss = log_probability[torch.arange(len(kinds)), kinds].mean()  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
