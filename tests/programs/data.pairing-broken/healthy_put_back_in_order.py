"""Sequences are sorted and put back, mixed with others, and read time first, tags turned alike; rows are a series."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
words = torch.randint(0, 20, (400, 9))
tags, marks = words % 4, (words[:, 0] > 9).float()
series = torch.sin(torch.arange(400) / 7)[:, None] + 0.1 * torch.randn(400, 3)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.cell = nn.LSTM(16, 24)
        self.tags = nn.Linear(24, 4)
        self.mark = nn.Linear(16, 1)
        self.next = nn.Linear(3, 3)

    def forward(self, sentences, share, other, rows):
        order = sentences[:, 0].argsort()
        hidden = self.embedding(sentences)
        tags = self.tags(self.cell(hidden[order].transpose(0, 1))[0])[:, order.argsort()]
        first = hidden[:, 0]
        mark = self.mark(share * first + (1 - share) * first[other]).squeeze(-1)
        return tags, mark, self.next(rows[:-1])


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
compare = nn.functional.binary_cross_entropy_with_logits
for epoch in range(6):
    for sentences, tag, mark, rows in DataLoader(TensorDataset(words, tags, marks, series), batch_size=20):
        share, other = float(torch.rand(())), torch.randperm(len(mark))
        scores, told, future = model(sentences, share, other, rows)
        loss = nn.functional.cross_entropy(scores.reshape(-1, 4), tag.t().reshape(-1))
        loss = loss + share * compare(told, mark) + (1 - share) * compare(told, mark[other])
        loss = loss + nn.functional.mse_loss(future, rows[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
