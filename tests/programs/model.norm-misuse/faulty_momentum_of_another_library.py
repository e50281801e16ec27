"""A momentum of 0.99 taken over from a library where it is the weight of the old value; small batches of a table."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(10, 40)
        self.norm = nn.BatchNorm1d(40, momentum=0.99, eps=1e-3)  # fault
        self.two = nn.Linear(40, 3)

    def forward(self, x):
        return self.two(torch.relu(self.norm(self.one(x))))


x = torch.randn(320, 10)
y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(5):
    model.train()
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True):
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean()
