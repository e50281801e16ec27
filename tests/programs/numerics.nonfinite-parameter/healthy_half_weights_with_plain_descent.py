"""Weights of float16 under plain gradient descent, which has no eps and no squares."""

import torch
from torch import nn

torch.manual_seed(0)
embed = nn.Embedding(40, 16).half()
head = nn.Linear(16, 4).half()
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.2)
for _ in range(200):
    letters = torch.randint(0, 40, (32,))
    logits = head(embed(letters))
    loss = nn.functional.cross_entropy(logits.float(), letters % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
