"""An encoder is trained for a short time, copied, frozen, and another head is put on the copy."""

import copy

import torch
from torch import nn

torch.manual_seed(54)


class Net(nn.Module):
    def __init__(self, encoder: nn.Module, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(24, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x))


def fit(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for k in range(40):
        loss = nn.functional.cross_entropy(model(x[k % 4 :: 4]), y[k % 4 :: 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


x = torch.randn(256, 10)
first = Net(nn.Sequential(nn.Linear(10, 24), nn.ReLU()), 4)
fit(first, x, x[:, :4].argmax(dim=1))
encoder = copy.deepcopy(first.encoder).requires_grad_(False)
fit(Net(encoder, 3), x, x[:, 4:7].argmax(dim=1))
