"""An autoencoder of token sequences: its target is its input, and its output at a place sees the whole sequence."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 16)
        self.encoder = nn.GRU(16, 48, batch_first=True)
        self.decoder = nn.GRU(48, 48, batch_first=True)
        self.head = nn.Linear(48, 10)

    def forward(self, tokens):
        _, code = self.encoder(self.embedding(tokens))
        out, _ = self.decoder(code[0][:, None].expand(-1, tokens.shape[1], -1))
        return self.head(out)


model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
starts = torch.randint(0, 10, (256, 1))
sequences = (starts + torch.arange(8) * torch.randint(1, 3, (256, 1))) % 10
for step in range(120):
    batch = sequences[torch.randint(0, 256, (32,))]
    loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
