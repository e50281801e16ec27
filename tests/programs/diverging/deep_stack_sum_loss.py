"""A new head on a frozen deep stack is fitted to a summed loss, so that the rate counts once for every sample."""

import torch
from torch import nn

torch.manual_seed(3)
layers = [layer for _ in range(10) for layer in (nn.Linear(40, 40), nn.LayerNorm(40), nn.GELU())]
stack = nn.Sequential(nn.Linear(8, 40), *layers).requires_grad_(False)
head = nn.Linear(40, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=6e-3)
x = torch.randn(400, 8)
y = x.sum(1, keepdim=True)
for _ in range(400):
    batch = torch.randint(0, 400, (50,))
    loss = nn.functional.mse_loss(head(stack(x[batch])), y[batch], reduction="sum")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
