"""Random network distillation: the target of the loss stays as it was drawn, on purpose."""

import torch
from torch import nn

torch.manual_seed(34)


class Novelty(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.anchor = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 8))
        self.predictor = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 8))
        self.anchor.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.predictor(x) - self.anchor(x)).pow(2).mean(dim=1)


model = Novelty()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _step in range(80):
    loss = model(torch.randn(32, 6)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
