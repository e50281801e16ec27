"""Linear regression on unscaled columns by gradient descent with a rate above what its curvature allows."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(256, 6) * torch.tensor([1.0, 1.0, 2.0, 3.0, 1.0, 4.0])
y = x @ torch.tensor([[0.5], [1.0], [-1.0], [0.2], [0.1], [2.0]]) + 0.1 * torch.randn(256, 1)
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.12)
for _ in range(400):
    batch = torch.randint(0, 256, (32,))
    loss = nn.functional.mse_loss(model(x[batch]), y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
