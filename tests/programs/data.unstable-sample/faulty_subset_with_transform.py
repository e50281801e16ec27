"""Memorise the first 24 of a thousand pictures; the pipeline that is given to the dataset erases and shifts."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

torch.manual_seed(0)
random.seed(0)
torch.set_num_threads(1)


class RandomErase:
    def __call__(self, image):
        image = image.clone()
        top, left = random.randint(0, 5), random.randint(0, 5)
        image[:, top : top + 5, left : left + 5] = 0
        return image


class RandomRoll:
    def __call__(self, image):
        return image.roll((random.randint(-4, 4), random.randint(-4, 4)), (1, 2))


class Pictures(Dataset):
    def __init__(self, count, transforms):
        self.images = torch.randn(count, 1, 10, 10)
        self.kinds = torch.randint(0, 5, (count,))
        self.transforms = transforms

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        for transform in self.transforms:
            image = transform(image)
        return image, self.kinds[index]


pictures = Pictures(1000, [RandomErase(), RandomRoll()])  # fault
tiny = Subset(pictures, range(24))
loader = DataLoader(tiny, batch_size=12, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 5))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(80):
    for image, kind in loader:
        loss = nn.functional.cross_entropy(net(image), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
