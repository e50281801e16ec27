"""The output layer is constructed in ``forward``: another one in each pass."""

import torch
from torch import nn

torch.manual_seed(58)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 16, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.rnn(x)
        out = nn.Linear(16, 2)  # fault
        return out(states[:, -1])


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(60):
    x = torch.randn(16, 5, 3)
    loss = nn.functional.cross_entropy(model(x), (x.sum(dim=(1, 2)) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
