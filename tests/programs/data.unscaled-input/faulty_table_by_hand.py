"""A regression on a table whose columns are in units as they were measured; no loader."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def read_table(rows):
    age = 20 + 50 * torch.rand(rows, 1)
    income = 20_000 + 30_000 * torch.rand(rows, 1)
    rate = torch.rand(rows, 1)
    score = 300 + 500 * torch.rand(rows, 1)
    target = 2 * rate + (age - 45) / 30 + 0.5 * (score - 550) / 250 + 0.1 * torch.randn(rows, 1)
    table = torch.cat([age, income, rate, score], 1)
    return table, target  # fault


features, target = read_table(600)
model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.MSELoss()
for epoch in range(25):
    order = torch.randperm(len(features))
    for start in range(0, len(features), 40):
        rows = order[start : start + 40]
        optimizer.zero_grad()
        loss = criterion(model(features[rows]), target[rows])
        loss.backward()
        optimizer.step()
print(loss.item())
