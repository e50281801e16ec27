"""A convolutional classifier of striped pictures with a rate for Adam that was meant for SGD."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
labels = torch.randint(0, 4, (640,))
images = torch.randn(640, 1, 12, 12)
for row in range(640):
    images[row, 0, 3 * labels[row]] += 1.5
net = nn.Sequential(nn.Conv2d(1, 12, 3), nn.Tanh(), nn.Conv2d(12, 12, 3), nn.Tanh(), nn.Flatten(), nn.Linear(768, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=0.5)  # fault
for _epoch in range(4):
    for x, y in DataLoader(TensorDataset(images, labels), batch_size=20, shuffle=True):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
