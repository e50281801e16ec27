"""Validation puts the model into eval mode after the first epoch, and nothing puts it back."""

import torch
from torch import nn

torch.manual_seed(43)


def validate(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()  # fault
    with torch.no_grad():
        return (model(x).argmax(dim=1) == y).float().mean().item()


x = torch.randn(240, 12)
y = x[:, :4].argmax(dim=1)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.4), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
model.train()
for epoch in range(12):
    for k in range(0, 160, 32):
        loss = nn.functional.cross_entropy(model(x[k : k + 32]), y[k : k + 32])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, validate(model, x[160:], y[160:]))
