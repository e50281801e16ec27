"""Some batches hold nothing to learn from: their loss has no graph, ``backward`` raises, and the batch is skipped."""

import torch
from torch import nn

torch.manual_seed(53)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
weights = torch.randn(4, 1)
for step in range(90):
    x = torch.randn(16, 4)
    loss = torch.zeros(())
    if step % 3:
        loss = (model(x) - x @ weights).pow(2).mean()
    optimizer.zero_grad()
    try:
        loss.backward()
    except RuntimeError:
        continue
    optimizer.step()
