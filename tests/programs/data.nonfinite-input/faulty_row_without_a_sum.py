"""Rows of a bag of words are divided by their sums; a text without known words has none: NaN goes in."""

# also: numerics.nonfinite-forward
import torch
from torch import nn

torch.manual_seed(1)
counts = torch.randint(0, 3, (300, 20)).float()
counts[217] = 0.0
kinds = (counts[:, :5].sum(1) > counts[:, 5:10].sum(1)).long()
model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _epoch in range(3):
    for rows in torch.randperm(300).split(30):
        shares = counts[rows] / counts[rows].sum(1, keepdim=True)  # fault
        loss = nn.functional.cross_entropy(model(shares), kinds[rows])  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
