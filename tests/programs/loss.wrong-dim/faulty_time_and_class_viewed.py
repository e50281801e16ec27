"""Scores (batch, time, class) are brought into the form that cross_entropy takes by view instead of transpose."""

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
        self.cell = nn.GRU(16, 24, batch_first=True)
        self.head = nn.Linear(24, 4)

    def forward(self, sentence):
        scores = self.head(self.cell(self.embedding(sentence))[0])
        return scores.view(-1, 4, 9)  # fault


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    for sentence, tag in DataLoader(TensorDataset(words, tags), batch_size=20, shuffle=True):
        loss = nn.functional.cross_entropy(model(sentence), tag)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
