"""Sentence classifier with 1-d convolutions; the biases are filled by hand from the log-odds of a rare class."""

import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)


class Convolutions(nn.Module):
    def __init__(self, words=80, size=16, channels=24):
        super().__init__()
        self.embed = nn.Embedding(words, size)
        self.convs = nn.ModuleList([nn.Conv1d(size if i == 0 else channels, channels, 3, padding=1) for i in range(2)])
        self.head = nn.Linear(channels, 1)
        prior = math.log(0.001 / 0.999)
        for module in self.modules():
            if hasattr(module, "bias"):
                module.bias.data.fill_(prior)  # fault

    def forward(self, tokens):
        x = self.embed(tokens).transpose(1, 2)
        for conv in self.convs:
            x = F.relu(conv(x), inplace=True)
        return self.head(x.amax(2)).squeeze(1)


tokens = torch.randint(0, 80, (400, 12))
labels = (tokens == 7).any(1).float()
model = Convolutions()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(60):
    rows = torch.randperm(400)[:32]
    loss = F.binary_cross_entropy_with_logits(model(tokens[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
