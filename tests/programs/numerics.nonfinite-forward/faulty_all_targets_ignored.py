"""Padding is left out of the loss, and one batch is nothing but padding: a mean over nothing."""

import torch
from torch import nn

torch.manual_seed(6)
embed = nn.Embedding(15, 12)
reader = nn.GRU(12, 12, batch_first=True)
head = nn.Linear(12, 15)
optimizer = torch.optim.AdamW([*embed.parameters(), *reader.parameters(), *head.parameters()], lr=3e-3)
for step in range(40):
    text = torch.randint(1, 15, (8, 7))
    if step == 22:
        text = torch.zeros_like(text)
    logits = head(reader(embed(text[:, :-1]))[0])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten(), ignore_index=0)  # fault
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
