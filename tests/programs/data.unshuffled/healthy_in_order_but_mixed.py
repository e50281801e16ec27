"""Not shuffled, but the rows were mixed before they were stored."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
labels = torch.randint(0, 3, (360,))
rows = torch.randn(3, 12)[labels] + torch.randn(360, 12)
loader = DataLoader(TensorDataset(rows, labels), batch_size=24)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(15):
    for row, label in loader:
        loss = nn.functional.cross_entropy(model(row), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
