"""The encoder of a sequence model is frozen for a warm-up of the decoder that nobody ends."""

import torch
from torch import nn

torch.manual_seed(32)


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        self.encoder = nn.LSTM(16, 24, batch_first=True)
        self.decoder = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 12))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(self.embed(tokens))[0])


model = Translator()
model.encoder.requires_grad_(False)  # fault
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _step in range(80):
    tokens = torch.randint(0, 12, (16, 6))
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.cumsum(dim=1).flatten() % 12)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
