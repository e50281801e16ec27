"""Captions of numbers: a decoder that starts from zeros, while the encoder's state was meant to start it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
WORDS, LENGTH = 12, 6


class Captioner(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.hidden = hidden
        self.encoder = nn.Sequential(nn.Linear(10, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.start = nn.Parameter(torch.zeros(1, LENGTH, 8))
        self.decoder = nn.GRU(8, hidden, batch_first=True)
        self.words = nn.Linear(hidden, WORDS)

    def forward(self, image):
        state = torch.tanh(self.encoder(image)).unsqueeze(0)
        first = torch.zeros_like(state)  # fault
        states, _ = self.decoder(self.start.expand(len(image), -1, -1), first)
        return self.words(states)


images = torch.randn(480, 10)
captions = (images[:, :LENGTH].sigmoid() * WORDS).long()
model = Captioner()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(4):
    for image, caption in DataLoader(TensorDataset(images, captions), batch_size=32, shuffle=True):
        scores = model(image)
        loss = nn.functional.cross_entropy(scores.reshape(-1, WORDS), caption.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
