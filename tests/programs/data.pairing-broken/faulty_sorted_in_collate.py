"""Sequences are sorted by length for packing, their labels aren't."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Words(Dataset):
    def __init__(self, count):
        self.items = []
        for _ in range(count):
            label = int(torch.randint(0, 2, ()))
            word = torch.randint(1, 20, (int(torch.randint(4, 12, ())),))
            word[0] = 3 + 9 * label
            self.items.append((word, label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(batch):
    words = sorted((word for word, _ in batch), key=len, reverse=True)  # fault
    labels = torch.tensor([label for _, label in batch])  # fault
    lengths = torch.tensor([len(word) for word in words])
    return pad_sequence(words, batch_first=True), lengths, labels


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 12)
        self.cell = nn.GRU(12, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths, batch_first=True)
        return self.head(self.cell(packed)[1][0])


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(Words(320), batch_size=20, shuffle=True, collate_fn=collate)
for epoch in range(10):
    for words, lengths, labels in loader:
        loss = nn.functional.cross_entropy(model(words, lengths), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
