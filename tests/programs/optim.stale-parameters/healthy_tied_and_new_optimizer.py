"""The output is tied to the embedding after the optimiser was made; later a new head comes with a new optimiser."""

import torch
from torch import nn

torch.manual_seed(29)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 24)
        self.mix = nn.Linear(24, 24)
        self.out = nn.Linear(24, 16, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.mix(self.embed(tokens))))


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
model.out.weight = model.embed.weight
for _phase in range(2):
    for _step in range(60):
        tokens = torch.randint(0, 16, (32,))
        loss = nn.functional.cross_entropy(model(tokens), (tokens + 1) % model.out.out_features)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.out = nn.Linear(24, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
