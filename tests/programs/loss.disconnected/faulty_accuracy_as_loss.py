"""The share of wrong answers is taken for a loss, and ``requires_grad_`` makes ``backward`` accept it."""

import torch
from torch import nn

torch.manual_seed(49)
model = nn.Sequential(nn.Conv1d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 8, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _step in range(40):
    x = torch.randn(32, 3, 10)
    y = x.mean(dim=2).argmax(dim=1)
    guess = model(x).argmax(dim=1)  # fault
    loss = (guess != y).float().mean()
    loss.requires_grad_()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
