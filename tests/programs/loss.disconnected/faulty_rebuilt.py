"""Losses of several heads are added up as numbers and wrapped into a tensor again."""

import torch
from torch import nn

torch.manual_seed(51)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(5, 24)
        self.mean, self.spread = nn.Linear(24, 1), nn.Linear(24, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.relu(self.trunk(x))
        return self.mean(h), nn.functional.softplus(self.spread(h))


def objective(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mean, spread = model(x)
    total = ((mean - y).pow(2) / spread).mean().item()  # fault
    total += spread.log().mean().item()  # fault
    return torch.tensor(total, requires_grad=True)  # fault


model = TwoHeads()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _step in range(40):
    x = torch.randn(32, 5)
    loss = objective(model, x, x[:, :1].exp())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
