"""Softmax and sigmoid where they belong: attention, gates, a mixture of experts; logits at the end."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Mixture(nn.Module):
    def __init__(self, dim=16, classes=4, experts=3):
        super().__init__()
        self.embed = nn.Embedding(30, dim)
        self.attend = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.probe = nn.Linear(dim, 1)
        self.squeeze = nn.Sequential(nn.Linear(dim, 4), nn.ReLU(), nn.Linear(4, dim), nn.Sigmoid())
        self.gate = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(nn.Linear(dim, classes) for _ in range(experts))

    def forward(self, words):
        x = self.embed(words)
        x = x + self.attend(x, x, x, need_weights=False)[0]
        share = torch.softmax(self.probe(x).squeeze(-1), dim=1)
        pooled = (share.unsqueeze(-1) * x).sum(1)
        pooled = pooled * self.squeeze(pooled)
        weights = torch.softmax(self.gate(pooled), dim=-1)
        votes = torch.stack([expert(pooled) for expert in self.experts], 1)
        return (weights.unsqueeze(-1) * votes).sum(1)


words = torch.randint(0, 30, (600, 10))
labels = (words == 3).sum(1).clamp(max=3)
model = Mixture()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(4):
    for x, y in DataLoader(TensorDataset(words, labels), batch_size=50, shuffle=True):
        scores = model(x)
        loss = F.cross_entropy(scores, y, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            F.softmax(scores, -1).max(-1).values.mean().item()
