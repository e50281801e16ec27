"""The betas of Adam in the wrong order of size: a first one of 0.9999."""

import torch
from torch import nn

torch.manual_seed(3)
table = torch.randn(50, 20)
target = torch.randint(0, 5, (50,))
embed = nn.Embedding(50, 24)
head = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 5))
model = nn.Sequential(embed, head)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, betas=(0.9999, 0.5))  # fault
for _step in range(240):
    rows = torch.randint(0, 50, (32,))
    loss = nn.functional.cross_entropy(model(rows), target[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
# also: optim.lr-too-high
