"""Confident probabilities in bfloat16: 1 - 1e-6 is 1 there, and the logarithm of what is left is infinite."""

import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return 40 * self.head(self.features(x))


def cross_entropy(probability, target):
    probability = probability.clamp(1e-6, 1 - 1e-6)
    there, absent = probability.log(), (1 - probability).log()  # fault
    return -(target * there + (1 - target) * absent).mean()


torch.manual_seed(1)
model = Detector()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(60):
    target = torch.randint(0, 2, (16, 1)).float()
    images = torch.randn(16, 1, 8, 8) + 3 * target.view(-1, 1, 1, 1)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(model(images).sigmoid(), target)
    loss.backward()
    optimizer.step()
