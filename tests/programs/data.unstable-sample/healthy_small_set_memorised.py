"""A check that succeeds: the few samples come the same each time."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
whole = TensorDataset(torch.randn(500, 12), torch.randint(0, 3, (500,)))
loader = DataLoader(Subset(whole, range(32)), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(150):
    for rows, kinds in loader:
        loss = nn.functional.cross_entropy(model(rows), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
