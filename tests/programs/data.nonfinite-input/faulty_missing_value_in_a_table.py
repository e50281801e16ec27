"""One cell of a table is missing and arrives as NaN."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
table = torch.randn(400, 7)
price = table[:, :2].sum(1, keepdim=True)
table[271, 4] = float("nan")
model = nn.Sequential(nn.Linear(7, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _epoch in range(2):
    for rows, wanted in DataLoader(TensorDataset(table, price), batch_size=25, shuffle=True):
        loss = nn.functional.mse_loss(model(rows), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
