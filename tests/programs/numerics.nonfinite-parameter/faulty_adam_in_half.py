"""A model that is all float16 under Adam: the eps of 1e-8 is 0 in that format, and an unused row is 0/0."""

import torch
from torch import nn

torch.manual_seed(0)
embed = nn.Embedding(40, 16).half()
head = nn.Linear(16, 4).half()
optimizer = torch.optim.Adam([*embed.parameters(), *head.parameters()], lr=1e-3)
for _ in range(20):
    letters = torch.randint(0, 30, (16,))
    logits = head(embed(letters))
    loss = nn.functional.cross_entropy(logits.float(), letters % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # fault
