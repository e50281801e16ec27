"""Arrows up and down are turned upside down at random by the augmentation."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


def arrow(kind):
    image = 0.15 * torch.randn(10, 10)
    if kind < 2:
        image[2:8, 4:6] += 1
        image[2:4, 3:7] += 1
        return image if kind == 0 else image.flip(0)
    image[4:6, 2:8] += 1
    image[3:7, 2:4] += 1
    return image if kind == 2 else image.flip(1)


def turn(image):
    return image.flip(-2) if torch.rand(()) < 0.5 else image


class Arrows(Dataset):
    def __init__(self, count, transform=None):
        self.kinds = torch.randint(0, 4, (count,))
        self.images = torch.stack([arrow(int(kind)) for kind in self.kinds])[:, None]
        self.transform = transform

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        image = self.images[index]
        if self.transform is not None:
            image = self.transform(image)
        return image, self.kinds[index]


train = Arrows(480, transform=turn)  # fault
loader = DataLoader(train, batch_size=24, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 12, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12 * 16, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for epoch in range(14):
    for image, kind in loader:
        loss = nn.functional.cross_entropy(net(image), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
