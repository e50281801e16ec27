"""Functional dropout that ``eval()`` doesn't reach."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(57)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 64)
        self.out = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.dropout(torch.relu(self.hidden(x)), 0.5)  # fault
        return self.out(h)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
held_out = torch.randn(100, 6)
for epoch in range(5):
    model.train()
    for _ in range(20):
        x = torch.randn(32, 6)
        loss = F.cross_entropy(model(x), x[:, :3].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = model(held_out).argmax(dim=1) == held_out[:, :3].argmax(dim=1)
    print(epoch, right.float().mean().item())
