"""Sensor values in raw units: the network learns a part of it, a line on standardised values all of it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
scales = torch.tensor([1000.0, 300.0, 1.0, 0.5, 5.0, 80.0])
values = (torch.randn(600, 6) + torch.tensor([1.0, 2.0, 0.0, 1.0, 0.0, 1.0])) * scales  # fault
wanted = ((values / scales) @ torch.tensor([0.3, 0.2, 1.5, -1.5, 1.0, 0.3]) > 1.0).float()[:, None]
loader = DataLoader(TensorDataset(values, wanted), batch_size=30, shuffle=True)
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(15):
    for rows, label in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(rows), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
