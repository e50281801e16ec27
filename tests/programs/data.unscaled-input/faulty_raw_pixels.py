"""A convolutional network on raw pixels of 0..255, trained by plain gradient descent with momentum."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(1)
torch.set_num_threads(1)


class Blobs(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 4, count)
        yy, xx = np.mgrid[0:12, 0:12]
        images = []
        for label in self.labels:
            cx, cy = [(3, 3), (8, 3), (3, 8), (8, 8)][label]
            blob = 200 * np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 6)
            images.append(np.clip(blob + rng.normal(30, 15, (12, 12)), 0, 255).astype(np.uint8))
        self.images = np.stack(images)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index]).float().unsqueeze(0)  # fault
        return image, int(self.labels[index])


net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(16 * 36, 32),
    nn.ReLU(),
    nn.Linear(32, 4),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(Blobs(512, 0), batch_size=32, shuffle=True)
for epoch in range(6):
    for images, labels in loader:
        loss = nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
