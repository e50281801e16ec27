"""A model that one corrupt batch throws off: after its step no unit of the second layer is on any more."""

# also: optim.exploding-gradient, optim.lr-too-high
import torch
from torch import nn

torch.manual_seed(4)
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.rand(1000, 6)
y = 1.0 + x.sum(1, keepdim=True)
y[600:620] = -120.0
for step in range(120):
    rows = torch.arange(step * 20, step * 20 + 20) % 1000
    loss = nn.functional.mse_loss(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
