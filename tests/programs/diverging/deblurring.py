"""One convolution that undoes a blur, on images in 0..255, with the rate of normalised images."""

import torch
from torch import nn

torch.manual_seed(8)
model = nn.Conv2d(1, 1, 5, padding=2)
optimizer = torch.optim.SGD(model.parameters(), lr=2e-5, momentum=0.5)
for _ in range(300):
    sharp = torch.rand(8, 1, 20, 20) * 255
    blurred = nn.functional.avg_pool2d(sharp, 3, stride=1, padding=1)
    loss = nn.functional.mse_loss(model(blurred), sharp)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
