"""A language model on random letters clips gradients that have just been cleared."""

import torch
from torch import nn


class Letters(nn.Module):
    def __init__(self, letters=20, width=24):
        super().__init__()
        self.embed = nn.Embedding(letters, width)
        self.reader = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, letters)

    def forward(self, x):
        return self.out(self.reader(self.embed(x))[0])


def train(model, steps=60):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        text = (torch.arange(13) * torch.randint(1, 3, (16, 1)) + torch.randint(0, 20, (16, 1))) % 20
        logits = model(text[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)  # fault
        loss.backward()
        optimizer.step()


torch.manual_seed(1)
train(Letters())
