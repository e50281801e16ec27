"""Chord labels for each beat: the probabilities are normalised over the beats, and gathered over the chords."""

import torch
from torch import nn

torch.manual_seed(1)
CHORDS, BEATS = 5, 16


class Chords(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(6, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, CHORDS)

    def forward(self, notes):
        states, _ = self.rnn(notes)
        return self.out(states)


def likelihood(scores, chords):
    log_p = torch.log_softmax(scores, dim=1)  # fault
    return nn.functional.nll_loss(log_p.reshape(-1, CHORDS), chords.reshape(-1))


model = Chords()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(60):
    notes = torch.randn(20, BEATS, 6)
    chords = notes[..., :CHORDS].argmax(-1)
    optimizer.zero_grad()
    likelihood(model(notes), chords).backward()
    optimizer.step()
