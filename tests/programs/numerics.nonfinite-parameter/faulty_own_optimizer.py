"""An optimiser written by hand divides by the root of its second moment: 0/0 for rows that no batch has used."""

import torch
from torch import nn


class Adaptive(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                square = self.state[p].setdefault("square", torch.zeros_like(p))
                square.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                p -= group["lr"] * p.grad / square.sqrt()  # fault


torch.manual_seed(0)
users = nn.Embedding(60, 4)
items = nn.Embedding(40, 4)
optimizer = Adaptive([users.weight, items.weight], lr=0.01)
for _ in range(30):
    u, i = torch.randint(0, 60, (32,)), torch.randint(0, 40, (32,))
    loss = ((users(u) * items(i)).sum(-1) - torch.cos(u + i.float())).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
