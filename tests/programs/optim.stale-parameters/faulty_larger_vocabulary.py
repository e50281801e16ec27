"""New words: the embedding is replaced by a larger one after the optimiser was made."""

import torch
from torch import nn

torch.manual_seed(26)


class Model(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.out = nn.Linear(16, 2)

    def grow(self, words: int) -> None:
        larger = nn.Embedding(words, 16)  # fault
        with torch.no_grad():
            larger.weight[: self.embed.num_embeddings] = self.embed.weight
        self.embed = larger  # fault

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.rnn(self.embed(tokens))[0][:, -1])


model = Model(20)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
model.grow(30)  # fault
for _step in range(60):
    tokens = torch.randint(0, 30, (16, 5))
    loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0] % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
