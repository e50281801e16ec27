"""A regression with rare huge targets limits its gradients out of place and drops the result."""

# also: optim.exploding-gradient

import torch
from torch import nn


class Learner:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.02)

    def limit(self, bound):
        for p in self.net.parameters():
            p.grad.clamp(-bound, bound)  # fault

    def learn(self, x, y):
        loss = (self.net(x).squeeze(-1) - y).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.limit(0.01)
        self.optimizer.step()


torch.manual_seed(0)
learner = Learner()
for step in range(120):
    x = torch.randn(16, 4)
    y = x[:, 0] - 0.5 * x[:, 1] ** 2
    if step % 40 == 39:
        y = y + 4000.0 * (torch.rand(16) < 0.3)
    learner.learn(x, y)
