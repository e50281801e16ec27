"""The dataset goes through its pictures in a random order of its own, but not through their labels."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Pictures(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 3, count)
        self.images = rng.normal(0, 0.4, (count, 1, 6, 6)).astype(np.float32)
        for image, label in zip(self.images, self.labels):
            image[0, 2 * label : 2 * label + 2] += 1
        self.order = rng.permutation(count)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[self.order[index]])  # fault
        return image, int(self.labels[index])  # fault


loader = DataLoader(Pictures(300, 0), batch_size=20, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(10):
    for image, label in loader:
        loss = nn.functional.cross_entropy(net(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
