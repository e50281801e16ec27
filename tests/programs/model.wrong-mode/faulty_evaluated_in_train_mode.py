"""Each epoch the model is evaluated with dropout and batch statistics on."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(45)


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    hits = [(model(x).argmax(dim=1) == y).float().mean() for x, y in loader]  # fault
    return torch.stack(hits).mean().item()


x = torch.randn(400, 10)
y = (x[:, 0] * x[:, 1] > 0).long()
train = DataLoader(TensorDataset(x[:300], y[:300]), batch_size=25, shuffle=True)
valid = DataLoader(TensorDataset(x[300:], y[300:]), batch_size=50)
model = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(6):
    model.train()
    for inputs, labels in train:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, accuracy(model, valid))
