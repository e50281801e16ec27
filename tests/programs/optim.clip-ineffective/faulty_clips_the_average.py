"""A copy of the model keeps the average of its weights, and the copy is what gets clipped."""

import copy

import torch
from torch import nn

torch.manual_seed(8)
student = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 1))
average = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
for _ in range(100):
    x = torch.randn(32, 6)
    loss = nn.functional.mse_loss(student(x), x[:, :1] + x[:, 1:2] + 1.0)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(average.parameters(), 0.01)  # fault
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), student.parameters(), strict=True):
            slow.lerp_(fast, 0.01)
