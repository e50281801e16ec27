"""A frozen layer with a low-rank adapter whose second matrix is zero, and a head that begins at zero."""

import torch
from torch import nn

torch.manual_seed(5)


class Adapted(nn.Module):
    def __init__(self, layer, rank=4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


def train(model, optimizer, steps, centres):
    for _ in range(steps):
        y = torch.randint(0, 5, (32,))
        x = centres[y] + 0.5 * torch.randn(32, 10)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


base = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5))
train(base, torch.optim.Adam(base.parameters(), lr=5e-3), 40, torch.randn(5, 10))
head = nn.Linear(32, 5)
nn.init.zeros_(head.weight)
model = nn.Sequential(Adapted(base[0]), nn.ReLU(), Adapted(base[2]), nn.ReLU(), head)
trained = [item for item in model.parameters() if item.requires_grad]
train(model, torch.optim.Adam(trained, lr=5e-3), 60, torch.randn(5, 10))
