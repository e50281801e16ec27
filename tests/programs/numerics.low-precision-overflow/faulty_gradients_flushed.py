"""A tiny weight on the loss, in float16 without a loss scaler: gradients are zero in that format."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(60):
    x = torch.randn(24, 12)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = 3e-8 * nn.functional.mse_loss(model(x), x[:, :1] + 2)
    loss.backward()  # fault
    optimizer.step()
