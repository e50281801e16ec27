"""Batches of two images and a last one of a single image; each statistic is taken over hundreds of pixels."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(7)
images = torch.rand(41, 1, 24, 24)
masks = (F.avg_pool2d(images, 5, stride=1, padding=2) > 0.5).float()
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1, bias=False),
    nn.BatchNorm2d(8, momentum=0.05),
    nn.ReLU(),
    nn.Conv2d(8, 8, 3, padding=1, bias=False),
    nn.GroupNorm(4, 8),
    nn.ReLU(),
    nn.InstanceNorm2d(8),
    nn.Conv2d(8, 1, 3, padding=1),
)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(4):
    for image, mask in DataLoader(TensorDataset(images, masks), batch_size=2, shuffle=True):
        loss = F.binary_cross_entropy_with_logits(model(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
