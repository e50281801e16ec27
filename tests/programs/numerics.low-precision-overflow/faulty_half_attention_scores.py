"""A model that is all float16: the products of queries and keys without a scale overflow once inputs are large."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2)  # fault
        return self.out(scores.softmax(2) @ x).mean(1)


def main():
    torch.manual_seed(3)
    model = Attention().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(20):
        size = 4.0 if step < 10 else 400.0
        x = (size * torch.randn(4, 6, 16)).half()
        loss = nn.functional.mse_loss(model(x).float() / size, x.float().mean((1, 2), keepdim=True)[:, 0] / size)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
