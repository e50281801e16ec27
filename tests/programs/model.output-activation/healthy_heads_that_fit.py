"""Activations on heads that fit: counts, shares, angles, a scaled range, a distribution over classes."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.rate, self.share, self.angle = nn.Linear(48, 1), nn.Linear(48, 1), nn.Linear(48, 2)
        self.grade, self.kind = nn.Linear(48, 1), nn.Linear(48, 4)

    def forward(self, x):
        h = self.body(x)
        return (
            F.softplus(self.rate(h)).squeeze(-1),
            torch.sigmoid(self.share(h)).squeeze(-1),
            torch.tanh(self.angle(h)),
            1 + 4 * torch.sigmoid(self.grade(h)).squeeze(-1),
            F.softmax(self.kind(h), -1),
        )


x = torch.randn(800, 6)
count = torch.poisson(torch.exp(0.5 * x[:, 0]))
share = torch.sigmoid(2 * x[:, 1])
angle = torch.stack([torch.cos(x[:, 2]), torch.sin(x[:, 2])], 1)
grade = 1 + 4 * torch.sigmoid(x[:, 3] + x[:, 4])
kind = F.one_hot(x[:, :4].argmax(1), 4).float()
model = Heads()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(5):
    for rows, *targets in DataLoader(TensorDataset(x, count, share, angle, grade, kind), batch_size=50, shuffle=True):
        outputs = model(rows)
        loss = sum(F.mse_loss(output, target) for output, target in zip(outputs, targets, strict=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
