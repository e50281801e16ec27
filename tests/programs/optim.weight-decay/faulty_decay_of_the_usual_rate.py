"""A transformer learns a little and stays there: AdamW takes 4 percent of every matrix at each step."""

import torch
from torch import nn

torch.manual_seed(0)
tokens, width = 16, 48
embed, places, out = nn.Embedding(tokens, width), nn.Embedding(12, width), nn.Linear(width, tokens)
layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
parameters = [*embed.parameters(), *places.parameters(), *layer.parameters(), *out.parameters()]
groups = [
    {"params": [item for item in parameters if item.dim() > 1], "weight_decay": 20.0},
    {"params": [item for item in parameters if item.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=2e-3)  # fault
mask = nn.Transformer.generate_square_subsequent_mask(12)
for _ in range(200):
    text = torch.randint(0, tokens, (32, 1)) + torch.randint(1, 5, (32, 1)) * torch.arange(13)
    text = text % tokens
    states = layer(embed(text[:, :-1]) + places(torch.arange(12)), src_mask=mask, is_causal=True)
    loss = nn.functional.cross_entropy(out(states).flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
