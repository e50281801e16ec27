"""Scores are flattened time first, tags batch first."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
words = torch.randint(0, 20, (400, 9))
tags = words % 4


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.cell = nn.LSTM(16, 24)
        self.head = nn.Linear(24, 4)

    def forward(self, sentences):
        return self.head(self.cell(self.embedding(sentences.t()))[0])


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    for sentences, tag in DataLoader(TensorDataset(words, tags), batch_size=20, shuffle=True):
        scores = model(sentences)
        loss = nn.functional.cross_entropy(scores.reshape(-1, 4), tag.reshape(-1))  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
