"""A table of categories: rows agree by chance, and outcomes are a matter of chance."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
codes = torch.randint(0, 3, (600, 4))
score = (codes.float() @ torch.tensor([1.0, -1.0, 0.5, 0.2])) / 2
outcome = torch.bernoulli(torch.sigmoid(score)).long()
table = nn.functional.one_hot(codes, 3).flatten(1).float()
loader = DataLoader(TensorDataset(table, outcome), batch_size=30, shuffle=True)
model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(10):
    for row, label in loader:
        loss = nn.functional.cross_entropy(model(row), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
