"""A recurrent language model at a large rate, clipped before backward: it overflows after a few steps."""

import torch
from torch import nn

torch.manual_seed(1)
embed, reader, out = nn.Embedding(20, 24), nn.RNN(24, 48, 2, nonlinearity="relu"), nn.Linear(48, 20)
parameters = [*embed.parameters(), *reader.parameters(), *out.parameters()]
optimizer = torch.optim.SGD(parameters, lr=15.0)
for _ in range(60):
    text = (torch.arange(21)[:, None] + torch.randint(0, 20, (1, 16))) % 20
    logits = out(reader(embed(text[:-1]))[0])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[1:].flatten())
    optimizer.zero_grad()
    nn.utils.clip_grad_norm_(parameters, 0.25)  # fault
    loss.backward()
    optimizer.step()
