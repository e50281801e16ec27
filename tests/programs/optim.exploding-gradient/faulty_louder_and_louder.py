"""The signals of a recurrent network become louder by three percent a step, until its steps overshoot."""

import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.enter = nn.Linear(2, width)
        self.turn = nn.Parameter(0.7 * torch.linalg.qr(torch.randn(width, width))[0])
        self.leave = nn.Linear(width, 1)

    def forward(self, x):
        state = x.new_zeros(len(x), len(self.turn))
        for now in x.unbind(1):
            state = torch.relu(self.enter(now) + state @ self.turn)
        return self.leave(state)


def train(model, rate, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step in range(steps):
        x = 1.03 ** max(0, step - 60) * torch.randn(16, 6, 2)
        loss = nn.functional.mse_loss(model(x), x[:, -1, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


torch.manual_seed(4)
train(Reader(), 1e-2, 250)
