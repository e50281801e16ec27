"""The losses of two heads are put into a new tensor to take their mean."""

import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore", message="Converting a tensor")
torch.manual_seed(0)
torch.set_num_threads(1)
points = torch.randn(400, 8)
kinds = torch.stack([(points[:, 0] > 0).long(), (points[:, 1] > 0).long()], 1)
trunk = nn.Sequential(nn.Linear(8, 24), nn.GELU())
heads = nn.ModuleList([nn.Linear(24, 2), nn.Linear(24, 2)])
optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=3e-3)
for epoch in range(3):
    for rows in torch.randperm(400).split(20):
        hidden = trunk(points[rows])
        losses = [nn.functional.cross_entropy(head(hidden), kinds[rows, i]) for i, head in enumerate(heads)]
        together = torch.tensor(losses, requires_grad=True)  # fault
        loss = together.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
