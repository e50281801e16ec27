"""bfloat16 with the loss computed from logits, which needs no eps."""

import torch
from torch import nn

torch.manual_seed(1)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(4), nn.Linear(4, 1)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(80):
    target = torch.randint(0, 2, (16, 1)).float()
    images = torch.randn(16, 1, 8, 8) + target.view(-1, 1, 1, 1)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.binary_cross_entropy_with_logits(model(images), target)
    loss.backward()
    optimizer.step()
