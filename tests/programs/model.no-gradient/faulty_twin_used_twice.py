"""The second hidden layer was meant where the first one is called again."""

import torch
from torch import nn

torch.manual_seed(56)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 32)
        self.fc1 = nn.Linear(32, 32)
        self.fc2 = nn.Linear(32, 32)
        self.out = nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.enter(x))
        h = torch.relu(self.fc1(h))
        h = torch.relu(self.fc1(h))  # fault
        return self.out(h)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(60):
    x = torch.randn(32, 6)
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
