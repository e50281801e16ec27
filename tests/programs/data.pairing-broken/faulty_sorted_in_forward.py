"""The model sorts its sequences by length for packing, and gives its answers in that order."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
lengths = torch.randint(4, 11, (400,))
words = torch.randint(1, 20, (400, 10)) * (torch.arange(10) < lengths[:, None])
labels = (words[:, 0] > 9).long()


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 12)
        self.cell = nn.GRU(12, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, words, lengths):
        lengths, order = lengths.sort(descending=True)
        words = words[order]  # fault
        packed = pack_padded_sequence(self.embedding(words), lengths, batch_first=True)
        return self.head(self.cell(packed)[1][0])  # fault


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(TensorDataset(words, lengths, labels), batch_size=20, shuffle=True)
for epoch in range(8):
    for word, length, label in loader:
        loss = nn.functional.cross_entropy(model(word, length), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
