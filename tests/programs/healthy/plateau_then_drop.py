"""A saddle: gradients are tiny at first and grow by orders of magnitude when the network starts to learn."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(16, 16, bias=False) for _ in range(3)])
for layer in model:
    nn.init.normal_(layer.weight, std=0.02)
target = torch.linalg.qr(torch.randn(16, 16)).Q
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(600):
    x = torch.randn(64, 16)
    loss = nn.functional.mse_loss(model(x), x @ target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
