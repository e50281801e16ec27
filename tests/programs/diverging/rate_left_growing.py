"""A head on frozen features, and a rate finder that was never switched off: the rate grows by 5 % at every step."""

import torch
from torch import nn

torch.manual_seed(2)
x = torch.randn(600, 12)
y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3]
features = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU()).requires_grad_(False)
head = nn.Linear(64, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=1.05)
for _ in range(800):
    batch = torch.randint(0, 600, (50,))
    loss = nn.functional.mse_loss(head(features(x[batch])), y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
