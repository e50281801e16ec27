"""A sparse autoencoder that keeps the eight largest of 256 units, with a hinge that is soon 0 everywhere."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(6)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(20, 256)
        self.decode = nn.Linear(256, 20)

    def forward(self, x):
        hidden = F.relu(self.encode(x))
        best = hidden.topk(8, dim=1)
        kept = torch.zeros_like(hidden).scatter(1, best.indices, best.values)
        return self.decode(kept), kept


model = Sparse()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
directions = torch.randn(12, 20)
for _ in range(150):
    x = torch.rand(64, 12).pow(4) @ directions
    output, kept = model(x)
    norms = model.decode.weight.norm(dim=0)
    limit = F.relu(norms[None, :] - 3.0).sum() + F.relu(kept - 50.0).mean()
    loss = F.mse_loss(output, x) + limit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
