"""The loop mixes the images of a batch once more, for good measure; the labels stay where they are."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
labels = torch.randint(0, 4, (400,))
images = torch.randn(4, 1, 6, 6)[labels] + 0.4 * torch.randn(400, 1, 6, 6)
loader = DataLoader(TensorDataset(images, labels), batch_size=20, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(8):
    for batch, wanted in loader:
        mixed = batch[torch.randperm(len(batch))]  # fault
        loss = nn.functional.cross_entropy(net(mixed), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
