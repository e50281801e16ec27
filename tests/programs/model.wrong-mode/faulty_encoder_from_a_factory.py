"""An encoder that is built for serving comes in eval mode; its batch norm has never seen a batch."""

import torch
from torch import nn

torch.manual_seed(44)


def make_encoder(width: int) -> nn.Module:
    layers = nn.Sequential(nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten())
    layers.eval()  # fault
    return layers


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = make_encoder(6)  # fault
        self.score = nn.Linear(6 * 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.score(self.encoder(x))


model = Scorer()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _step in range(60):
    x = torch.rand(16, 1, 6, 6)
    loss = (model(x) - x.amax(dim=(1, 2, 3)).unsqueeze(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
