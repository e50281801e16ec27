"""Raw pixels of 0..255, but the network begins with a batch norm."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
torch.set_num_threads(1)
labels = torch.randint(0, 3, (480,))
images = 60 * torch.rand(480, 1, 8, 8)
for row, label in enumerate(labels):
    images[row, 0, 2 * label : 2 * label + 2] += 150
loader = DataLoader(TensorDataset(images, labels), batch_size=24, shuffle=True)
net = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in range(6):
    for batch, target in loader:
        loss = nn.functional.cross_entropy(net(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
