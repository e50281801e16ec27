"""The context of a text model is computed under ``no_grad``, although its network is new and is to learn."""

import torch
from torch import nn

torch.manual_seed(39)


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.context = nn.GRU(16, 16, batch_first=True)
        self.out = nn.Linear(32, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        words = self.embed(tokens)
        with torch.no_grad():  # fault
            states, _ = self.context(words)  # fault
        return self.out(torch.cat([words[:, -1], states[:, -1]], dim=1))


model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _step in range(60):
    tokens = torch.randint(0, 30, (16, 7))
    loss = nn.functional.cross_entropy(model(tokens), (tokens[:, 0] + tokens[:, 3]) % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
