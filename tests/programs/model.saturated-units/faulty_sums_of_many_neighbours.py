"""Messages of all other nodes are added up, not averaged, before a tanh layer: it takes values in the dozens."""

# also: data.unscaled-input
import torch
from torch import nn

torch.manual_seed(6)


class Graphs(nn.Module):
    def __init__(self, size=8, hidden=32):
        super().__init__()
        self.message = nn.Linear(size, hidden)
        self.update = nn.Linear(hidden, hidden)  # fault
        self.again = nn.Linear(hidden, hidden)  # fault
        self.read = nn.Linear(hidden, 1)

    def forward(self, nodes, edges):
        x = torch.tanh(self.update(edges @ torch.relu(self.message(nodes))))
        x = torch.tanh(self.again(edges @ x))
        return self.read(x).squeeze(-1)


model = Graphs()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for _ in range(80):
    nodes = torch.randn(4, 150, 8)
    edges = torch.ones(4, 150, 150) - torch.eye(150)
    target = nodes[:, :, 0] + nodes.mean((1, 2))[:, None]
    loss = nn.functional.mse_loss(model(nodes, edges), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
