"""A linear warm-up over a hundred thousand steps in a run of three hundred."""

import torch
from torch import nn

torch.manual_seed(2)
tokens = torch.randint(0, 12, (960, 8))
target = tokens.flip(1)
embed = nn.Embedding(12, 32)
layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
place = nn.Parameter(0.1 * torch.randn(8, 32))
head = nn.Linear(32, 12)
parameters = [*embed.parameters(), *layer.parameters(), place, *head.parameters()]
optimizer = torch.optim.Adam(parameters, lr=2e-3)
warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100_000))  # fault
for _epoch in range(10):
    for rows in torch.randperm(960).split(32):
        logits = head(layer(embed(tokens[rows]) + place))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm_up.step()
