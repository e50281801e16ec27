"""Clipping through the optimiser's parameter groups at 1e-5, for a transformer that is trained by SGD."""

import torch
from torch import nn

torch.manual_seed(2)
tokens = torch.randint(0, 10, (480, 6))
embed = nn.Embedding(10, 16)
layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
head = nn.Linear(16, 10)
groups = [{"params": [*embed.parameters()]}, {"params": [*layer.parameters(), *head.parameters()], "lr": 0.05}]
optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
for _epoch in range(5):
    for rows in torch.randperm(480).split(32):
        logits = head(layer(embed(tokens[rows])))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), (tokens[rows].flatten() + 1) % 10)
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            nn.utils.clip_grad_norm_(group["params"], 1e-5)  # fault
        optimizer.step()
