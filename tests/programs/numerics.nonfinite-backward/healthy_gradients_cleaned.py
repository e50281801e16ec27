"""A hook replaces what isn't finite in the gradient of a root before it goes on."""

import torch
from torch import nn


class Rooted(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(4, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        light = self.lift(x).relu()
        if light.requires_grad:
            light.register_hook(lambda grad: torch.nan_to_num(grad, 0.0, 0.0, 0.0))
        return self.out(light.sqrt())


torch.manual_seed(2)
model = Rooted()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for _ in range(150):
    x = torch.rand(24, 4)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).sqrt())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
