"""A sequence model that normalises its hidden features along the time steps, since the shapes happen to fit."""

import torch
from torch import nn

torch.manual_seed(6)


class Forecast(nn.Module):
    def __init__(self, steps=12, hidden=32):
        super().__init__()
        self.enter = nn.Linear(3, hidden)
        self.norm = nn.BatchNorm1d(steps)  # fault
        self.reader = nn.GRU(hidden, hidden, batch_first=True)
        self.leave = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.leave(self.reader(torch.relu(self.norm(self.enter(x))))[0][:, -1])


model = Forecast()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(60):
    x = torch.randn(24, 12, 3).cumsum(1)
    loss = nn.functional.mse_loss(model(x), x.mean((1, 2), keepdim=True)[:, 0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
