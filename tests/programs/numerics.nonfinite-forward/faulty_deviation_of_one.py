"""Scores are normalised within a batch by an unbiased variance, and the last batch of an epoch has one sample."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def standardised(scores):
    away = scores - scores.mean(0)
    variance = away.pow(2).sum(0) / (len(scores) - 1)  # fault
    return away / (variance + 1e-6).sqrt()


def train(model, loader):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _epoch in range(2):
        for images, score in loader:
            optimizer.zero_grad()
            nn.functional.smooth_l1_loss(standardised(model(images)), score).backward()
            optimizer.step()


torch.manual_seed(2)
images = torch.randn(129, 1, 8, 8)
loader = DataLoader(TensorDataset(images, images.mean((2, 3)) * 8), batch_size=16, shuffle=True)
train(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1)), loader)
