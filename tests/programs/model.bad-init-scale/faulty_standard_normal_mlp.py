"""A deep ReLU network with weights from a standard normal distribution: its first outputs are in the thousands."""

import torch
from torch import nn

torch.manual_seed(1)


def draw(module):
    if isinstance(module, nn.Linear):
        module.weight.data.normal_(0.0, 1.0)  # fault
        module.bias.data.zero_()


model = nn.Sequential(
    nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 6)
)
model.apply(draw)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
centres = torch.randn(6, 32)
for _ in range(100):
    y = torch.randint(0, 6, (32,))
    x = centres[y] + torch.randn(32, 32)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
