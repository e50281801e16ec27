"""A two-layer model with matrices of its own, filled with one number; the units lie along the columns."""

import torch
from torch import nn

torch.manual_seed(2)


class Factors(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.inward = nn.Parameter(torch.full((inputs, hidden), 0.1))  # fault
        self.shift = nn.Parameter(torch.zeros(hidden))
        self.outward = nn.Parameter(torch.full((hidden, 1), 0.1))

    def forward(self, x):
        return torch.relu(x @ self.inward + self.shift) @ self.outward


x = torch.rand(400, 6)
y = (x[:, :1] - x[:, 1:2]).abs()
model = Factors(6, 40)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(100):
    rows = torch.randint(0, 400, (40,))
    loss = (model(x[rows]) - y[rows]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
