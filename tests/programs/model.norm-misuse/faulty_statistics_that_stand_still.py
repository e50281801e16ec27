"""A deblurring net whose batch normalisations were given a momentum of 0: what evaluation uses is a new layer's."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)


def stage(inward, outward):
    return nn.Sequential(
        nn.Conv2d(inward, outward, 3, padding=1, bias=False),
        nn.BatchNorm2d(outward, momentum=0.0),  # fault
        nn.ReLU(inplace=True),
    )


model = nn.Sequential(stage(1, 12), stage(12, 12), nn.Conv2d(12, 1, 3, padding=1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(60):
    sharp = 3 + 4 * torch.rand(8, 1, 12, 12)
    blurred = F.avg_pool2d(sharp, 3, stride=1, padding=1)
    loss = F.mse_loss(model(blurred), sharp)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
