"""Temporal differences with eligibility traces: gradients are kept and decayed on purpose."""

import torch
from torch import nn

torch.manual_seed(17)
value = nn.Linear(5, 1, bias=False)
nn.init.zeros_(value.weight)
optimizer = torch.optim.SGD(value.parameters(), lr=1.0)
state = 2
for _step in range(300):
    after = max(0, min(4, state + (1 if torch.rand(()) < 0.5 else -1)))
    reward = float(after == 4)
    now = torch.eye(5)[state]
    with torch.no_grad():
        error = reward + 0.9 * value(torch.eye(5)[after]) - value(now)
        for parameter in value.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(0.9 * 0.8)
    value(now).sum().backward()
    kept = [parameter.grad.clone() for parameter in value.parameters()]
    for parameter in value.parameters():
        parameter.grad.mul_(-0.05 * float(error))
    optimizer.step()
    for parameter, trace in zip(value.parameters(), kept, strict=True):
        parameter.grad.copy_(trace)
    state = after
