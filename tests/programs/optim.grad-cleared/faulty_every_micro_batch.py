"""A small transformer: one step for four micro-batches, but gradients are cleared for each of them."""

import torch
from torch import nn

torch.manual_seed(9)
ACCUMULATE = 4


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.encoder(self.embed(tokens)))


model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for i in range(80):
    tokens = torch.randint(0, 20, (4, 8))
    optimizer.zero_grad()  # fault
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten() % 3) / ACCUMULATE
    loss.backward()
    if (i + 1) % ACCUMULATE == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
