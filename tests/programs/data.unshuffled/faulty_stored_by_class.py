"""Digits are stored class by class, and read in that order."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
digits = load_digits()
order = digits.target.argsort(kind="stable")
images = torch.tensor(digits.images[order], dtype=torch.float32).flatten(1) / 16
labels = torch.tensor(digits.target[order])
train = TensorDataset(images, labels)
loader = DataLoader(train, batch_size=32)  # fault
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(5):
    for image, label in loader:
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
