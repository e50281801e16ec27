"""A recommender on user and item ids, all of which stand, as numbers, in the order that the batches are drawn in."""

import torch
from torch import nn


class Factors(nn.Module):
    def __init__(self, users, items, width=8):
        super().__init__()
        self.user, self.item = nn.Embedding(users, width), nn.Embedding(items, width)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1)


def main():
    torch.manual_seed(0)
    u, i = torch.randint(0, 200, (6000,)), torch.randint(0, 120, (6000,))
    taste, kind = torch.randn(200, 3), torch.randn(120, 3)
    r = (taste[u] * kind[i]).sum(-1) + 0.1 * torch.randn(6000)
    model = Factors(200, 120)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        order = torch.randperm(len(r))
        for idx in order.split(128):
            loss = nn.functional.mse_loss(model(u[idx], i[idx]), r[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
