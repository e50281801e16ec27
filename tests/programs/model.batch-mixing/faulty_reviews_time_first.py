"""Ratings of reviews by a recurrent network that takes the batch for time."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
WORDS, LENGTH = 40, 12


class Reviews(Dataset):
    def __init__(self, count=400):
        self.words = torch.randint(0, WORDS, (count, LENGTH))
        self.rating = (self.words < 10).float().mean(1)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        return {"words": self.words[i], "rating": self.rating[i]}


class Rater(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, 12)
        self.rnn = nn.GRU(12, 16, num_layers=2)  # fault
        self.rate = nn.Linear(16, 1)

    def forward(self, words):
        states, _ = self.rnn(self.table(words))  # fault
        return self.rate(states[:, -1]).squeeze(-1)


model = Rater()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(3):
    for batch in DataLoader(Reviews(), batch_size=25, shuffle=True):
        loss = nn.functional.mse_loss(model(batch["words"]), batch["rating"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
