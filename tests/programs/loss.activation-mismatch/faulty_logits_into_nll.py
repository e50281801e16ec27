"""Part-of-speech tagging where the log-softmax was forgotten before the negative log-likelihood."""

import torch
from torch import nn

torch.manual_seed(5)
VOCAB, TAGS = 60, 6
tag_of = torch.randint(0, TAGS, (VOCAB,))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.out = nn.Linear(32, TAGS)

    def forward(self, words):
        states, _ = self.rnn(self.embed(words))
        return self.out(states)


model = Tagger()
criterion = nn.NLLLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(60):
    words = torch.randint(0, VOCAB, (16, 9))
    loss = criterion(model(words).reshape(-1, TAGS), tag_of[words].reshape(-1))  # fault
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
