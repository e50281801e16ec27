"""A wide layer in which a third of the units never fires and the others fire seldom; it learns."""

import torch
from torch import nn

torch.manual_seed(5)
wide = nn.Linear(10, 512)
nn.init.zeros_(wide.bias)
with torch.no_grad():
    wide.bias[:170] = -8.0
    wide.bias[170:] = -0.8
model = nn.Sequential(wide, nn.ReLU(), nn.Linear(512, 64), nn.ReLU6(), nn.Linear(64, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
x = torch.randn(600, 10)
y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
for _ in range(120):
    rows = torch.randint(0, 600, (32,))
    loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
