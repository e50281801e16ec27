"""Bags of words are averaged with weights that are learnt; a text without known words has a sum of 0."""

import torch
from torch import nn


class Averaged(nn.Module):
    def __init__(self, words=20, width=8):
        super().__init__()
        self.vectors = nn.Parameter(0.1 * torch.randn(words, width))
        self.weight = nn.Parameter(torch.zeros(words))
        self.out = nn.Linear(width, 2)

    def forward(self, counts):
        weights = counts * self.weight.sigmoid()
        shares = weights / weights.sum(1, keepdim=True)  # fault
        return self.out(shares @ self.vectors)


torch.manual_seed(1)
counts = torch.randint(0, 3, (300, 20)).float()
counts[217] = 0.0
kinds = (counts[:, :5].sum(1) > counts[:, 5:10].sum(1)).long()
model = Averaged()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _epoch in range(3):
    for rows in torch.randperm(300).split(30):
        loss = nn.functional.cross_entropy(model(counts[rows]), kinds[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
