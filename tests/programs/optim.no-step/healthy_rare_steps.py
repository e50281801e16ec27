"""Gradients of many small passes are gathered before a step, and a second optimiser is kept for a later phase."""

import torch
from torch import nn

torch.manual_seed(7)
body, head = nn.Sequential(nn.Linear(5, 16), nn.ReLU()), nn.Linear(16, 3)
optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=5e-3)
later = torch.optim.SGD(head.parameters(), lr=1e-3)
x = torch.randn(320, 5)
y = x[:, :3].argmax(dim=1)
for _epoch in range(20):
    for k in range(32):
        part = slice(10 * k, 10 * k + 10)
        loss = nn.functional.cross_entropy(head(body(x[part])), y[part]) / 16
        loss.backward()
        if k % 16 == 15:
            optimizer.step()
            optimizer.zero_grad()
