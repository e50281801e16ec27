"""The model is copied after the optimiser was made, and the copy is trained."""

import copy

import torch
from torch import nn

torch.manual_seed(25)


def main() -> None:
    base = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(base.parameters(), lr=1e-3)  # fault
    model = copy.deepcopy(base)  # fault
    for _step in range(60):
        x = torch.randn(32, 6)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > x[:, 1]).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
