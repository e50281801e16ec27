"""Pixels are scaled to 0..1 and stored as whole numbers: every image is black."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Pictures(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = (self.images[index] / 256).astype(np.uint8)  # fault
        return {"image": torch.from_numpy(image).float()[None], "label": int(self.labels[index])}


rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 300)
images = rng.integers(0, 120, (300, 9, 9)).astype(np.uint8)
for image, label in zip(images, labels):
    image[3 * label : 3 * label + 3] += 130
loader = DataLoader(Pictures(images, labels), batch_size=20, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 49, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(6):
    for batch in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(batch["image"]), batch["label"])
        loss.backward()
        optimizer.step()
print(loss.item())
