"""A router picks one branch by ``argmax``, so nothing tells it whether the choice was good."""

import torch
from torch import nn

torch.manual_seed(40)


class Routed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.branches = nn.Parameter(torch.randn(4, 8, 2) * 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.router(x).argmax(dim=1)  # fault
        return torch.einsum("bi,bio->bo", x, self.branches[chosen])


model = Routed()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _step in range(60):
    x = torch.randn(32, 8)
    loss = (model(x) - torch.stack([x[:, 0].abs(), x[:, 1].abs()], dim=1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
