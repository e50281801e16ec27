"""A helper that reports gradient norms clears them as it goes, before the step."""

import torch
from torch import nn

torch.manual_seed(10)


def report(model: nn.Module) -> float:
    total = sum(float(item.grad.norm()) for item in model.parameters())
    model.zero_grad(set_to_none=False)  # fault
    return total


model = nn.Sequential(nn.Linear(3, 32), nn.GELU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _step in range(60):
    x = torch.randn(64, 3)
    loss = (model(x) - x.prod(dim=1, keepdim=True)).pow(2).mean()
    loss.backward()
    norm = report(model)
    optimizer.step()
