"""A triplet loss by hand: the root of a squared distance of 0, where an anchor is its own positive."""

import torch
from torch import nn

torch.manual_seed(4)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    anchor = torch.randn(16, 6)
    positive = anchor + 0.1 * torch.randn(16, 6)
    if step == 17:
        positive[5] = anchor[5]
    near = (model(anchor) - model(positive)).pow(2).sum(1).sqrt()  # fault
    far = (model(anchor) - model(torch.randn(16, 6))).pow(2).sum(1).add(1e-6).sqrt()
    loss = (near - far + 1).relu().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
