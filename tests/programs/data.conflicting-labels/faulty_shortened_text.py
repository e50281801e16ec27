"""Texts are cut to their first tokens, in which many of them agree while their labels don't."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Texts(Dataset):
    def __init__(self, count, length):
        openings = torch.randint(1, 60, (30, 24))
        self.texts = torch.cat([openings[torch.randint(0, 30, (count,))], torch.randint(1, 60, (count, 8))], 1)
        self.labels = (self.texts[:, -1] > 30).long()
        self.length = length

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        tokens = self.texts[index][: self.length]  # fault
        return tokens, self.labels[index]


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(60, 16)
        self.cell = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, 2)

    def forward(self, tokens):
        out, _ = self.cell(self.embedding(tokens))
        return self.head(out[:, -1])


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    for tokens, label in DataLoader(Texts(512, 24), batch_size=32, shuffle=True):
        loss = nn.functional.cross_entropy(model(tokens), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
