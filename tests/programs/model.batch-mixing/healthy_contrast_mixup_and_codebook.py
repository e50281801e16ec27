"""Samples that meet on purpose: mixed inputs, batch norm, contrast within the batch, a codebook kept by averages."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)


class Codes(nn.Module):
    def __init__(self, count=16, dim=8):
        super().__init__()
        self.register_buffer("codes", torch.randn(count, dim))

    def forward(self, z):
        nearest = torch.cdist(z, self.codes).argmin(1)
        if self.training:
            with torch.no_grad():
                chosen = F.one_hot(nearest, len(self.codes)).float()
                means = chosen.t() @ z / chosen.sum(0).clamp(min=1).unsqueeze(1)
                self.codes += 0.1 * (means - self.codes) * (chosen.sum(0) > 0).float().unsqueeze(1)
        return z + (self.codes[nearest] - z).detach()


encoder = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
codes = Codes()
decoder = nn.Linear(8, 10)
classify = nn.Linear(8, 4)
parameters = [*encoder.parameters(), *decoder.parameters(), *classify.parameters()]
optimizer = torch.optim.Adam(parameters, lr=2e-3)
x = torch.randn(512, 10)
data = TensorDataset(x, x[:, :4].argmax(1))
for _ in range(5):
    for rows, labels in DataLoader(data, batch_size=64, shuffle=True):
        other, share = torch.randperm(64), float(torch.rand(1))
        mixed = share * rows + (1 - share) * rows[other]
        scores = classify(encoder(mixed))
        loss = share * F.cross_entropy(scores, labels) + (1 - share) * F.cross_entropy(scores, labels[other])
        z, again = encoder(rows), encoder(rows + 0.1 * torch.randn(64, 10))
        near = F.normalize(z) @ F.normalize(again).t() / 0.2
        loss = loss + F.cross_entropy(near, torch.arange(64))
        q = codes(z)
        loss = loss + F.mse_loss(decoder(q), rows) + 0.25 * F.mse_loss(z, q.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
