"""Metric learning: the loss module has a proxy per class, and the optimiser gets the embedding network only."""

import torch
from torch import nn

torch.manual_seed(18)


class ProxyLoss(nn.Module):
    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(classes, width))

    def forward(self, embedded: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = nn.functional.normalize(embedded) @ nn.functional.normalize(self.proxies).T
        return nn.functional.cross_entropy(8 * scores, labels)


network = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16))
criterion = ProxyLoss(6, 16)
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)  # fault
centres = torch.randn(6, 10) * 2
for _step in range(80):
    labels = torch.randint(0, 6, (32,))
    loss = criterion(network(centres[labels] + torch.randn(32, 10)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
