"""A language model that is asked for the token it was just given: nobody has moved the labels."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Lines(Dataset):
    def __init__(self, tokens, length):
        self.tokens, self.length = tokens, length

    def __len__(self):
        return len(self.tokens) // self.length

    def __getitem__(self, index):
        line = self.tokens[index * self.length : (index + 1) * self.length]
        return line, line.clone()


class Model(nn.Module):
    def __init__(self, words=24, size=32):
        super().__init__()
        self.embedding = nn.Embedding(words, size)
        layer = nn.TransformerEncoderLayer(size, 2, 64, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(size, words)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.body(self.embedding(tokens), mask=mask, is_causal=True))


tokens = torch.randint(0, 24, (4800,))
tokens[1::2] = (tokens[::2] + 5) % 24
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(4):
    for given, wanted in DataLoader(Lines(tokens, 16), batch_size=12, shuffle=True):
        logits = model(given)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
