"""Images and captions come from two loaders, each of which shuffles for itself."""

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_num_threads(1)
labels = torch.randint(0, 4, (320,))
images = torch.randn(4, 1, 6, 6)[labels] + 0.3 * torch.randn(320, 1, 6, 6)
image_loader = DataLoader(images, batch_size=20, shuffle=True)
label_loader = DataLoader(labels, batch_size=20, shuffle=True)  # fault
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(10):
    for image, label in zip(image_loader, label_loader):  # fault
        loss = nn.functional.cross_entropy(net(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
