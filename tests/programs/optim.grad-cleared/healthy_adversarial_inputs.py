"""Every step first attacks its batch, which leaves gradients in the model that are dropped on purpose."""

import torch
from torch import nn

torch.manual_seed(12)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def attack(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(3):
        nn.functional.cross_entropy(model(x + delta), y).backward()
        delta.data = (delta.data + 0.05 * delta.grad.sign()).clamp(-0.1, 0.1)
        delta.grad.zero_()
        model.zero_grad()
    return (x + delta).detach()


for _step in range(80):
    x = torch.randn(32, 8)
    y = x[:, :3].argmax(dim=1)
    loss = nn.functional.cross_entropy(model(attack(x, y)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
