"""Images with a blank margin into a classifier whose weights all begin at 0.05: the margin's weights never move."""

import torch
from torch import nn

torch.manual_seed(9)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4))
for module in model:
    if isinstance(module, nn.Linear):
        nn.init.constant_(module.weight, 0.05)  # fault
        nn.init.zeros_(module.bias)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
patterns = torch.zeros(4, 8, 8)
patterns[:, 2:6, 2:6] = torch.rand(4, 4, 4)
for _ in range(60):
    y = torch.randint(0, 4, (32,))
    x = patterns[y] * (0.5 + torch.rand(32, 1, 1))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
