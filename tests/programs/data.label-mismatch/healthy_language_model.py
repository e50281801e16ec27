"""Overlapping windows, moved by one in the loss alone."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
text = torch.randint(0, 12, (3000,))
text[1::2] = (text[::2] + 3) % 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 24)
        self.cell = nn.GRU(24, 32, batch_first=True)
        self.head = nn.Linear(32, 12)

    def forward(self, tokens):
        return self.head(self.cell(self.embedding(tokens))[0])


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(120):
    starts = torch.randint(0, 2900, (16,))
    window = torch.stack([text[start : start + 20] for start in starts])
    logits = model(window)
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), window[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
