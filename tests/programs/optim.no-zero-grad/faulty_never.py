"""A convolutional regression whose loop never clears gradients."""

import torch
from torch import nn

torch.manual_seed(13)
model = nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for _step in range(120):
    x = torch.randn(16, 2, 12)
    loss = (model(x) - x.mean(dim=(1, 2)).unsqueeze(1)).pow(2).mean()
    loss.backward()  # fault
    optimizer.step()  # fault
