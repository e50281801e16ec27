"""Attention gives its weights over the batch and sums over positions; batches are drawn by hand."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 16)
        self.cell = nn.GRU(16, 24, batch_first=True)
        self.score = nn.Linear(24, 1)
        self.head = nn.Linear(24, 12)

    def forward(self, words):
        states, _ = self.cell(self.embedding(words))
        weights = torch.softmax(self.score(torch.tanh(states)), dim=0)  # fault
        return self.head((weights * states).sum(dim=1))


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(120):
    words = torch.randint(1, 12, (32, 7))
    loss = nn.functional.cross_entropy(model(words), words.max(1).values)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
