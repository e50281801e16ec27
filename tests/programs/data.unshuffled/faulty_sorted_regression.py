"""House prices sorted from the cheapest to the dearest, read in order by a network that is quick to forget."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(480, 5)
y = (x @ torch.randn(5, 1)) + 0.1 * torch.randn(480, 1)
order = y[:, 0].argsort()
loader = DataLoader(TensorDataset(x[order], y[order]), batch_size=16)  # fault
model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(8):
    for rows, price in loader:
        loss = nn.functional.mse_loss(model(rows), price)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
