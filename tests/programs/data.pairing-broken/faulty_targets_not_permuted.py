"""A loop that takes inputs by a random order and targets by their place."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(320, 8)
y = (x[:, :1] - 2 * x[:, 1:2]).tanh()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(12):
    order = torch.randperm(len(x))
    for start in range(0, len(x), 20):
        batch = x[order[start : start + 20]]
        wanted = y[start : start + 20]  # fault
        loss = nn.functional.mse_loss(model(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
