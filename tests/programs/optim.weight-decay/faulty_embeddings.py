"""A recommender of two embedding tables that decay to nothing."""

import torch
from torch import nn


class Factors(nn.Module):
    def __init__(self, users, items, size):
        super().__init__()
        self.user = nn.Embedding(users, size)
        self.item = nn.Embedding(items, size)
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.item.weight, std=0.3)

    def forward(self, user, item):
        return (self.user(user) * self.item(item)).sum(1)


def main():
    torch.manual_seed(2)
    taste, kind = torch.randn(60, 4), torch.randn(40, 4)
    user, item = torch.randint(0, 60, (3000,)), torch.randint(0, 40, (3000,))
    liked = ((taste[user] * kind[item]).sum(1) > 0).float()
    model = Factors(60, 40, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=0.3)  # fault
    for _epoch in range(6):
        for rows in torch.randperm(3000).split(100):
            loss = nn.functional.binary_cross_entropy_with_logits(model(user[rows], item[rows]), liked[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
