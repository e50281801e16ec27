"""A recurrent tagger: RMSprop with a rate of one."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.out = nn.Linear(32, 3)

    def forward(self, tokens):
        states, _ = self.rnn(self.embed(tokens))
        return self.out(states)


def train(model, loader, optimizer, epochs):
    for _epoch in range(epochs):
        for tokens, tags in loader:
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


torch.manual_seed(2)
tokens = torch.randint(0, 30, (600, 12))
tags = (tokens + tokens.roll(1, 1)) % 3
model = Tagger()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1.0)  # fault
train(model, DataLoader(TensorDataset(tokens, tags), batch_size=24, shuffle=True), optimizer, 4)
