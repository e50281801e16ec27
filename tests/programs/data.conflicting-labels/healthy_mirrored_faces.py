"""Mirroring is right here: no class is another's mirror image, and one pair of classes is merely harder."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Shapes(Dataset):
    def __init__(self, count):
        self.kinds = torch.randint(0, 3, (count,))
        self.images = 0.5 * torch.randn(count, 1, 10, 10)
        for image, kind in zip(self.images, self.kinds):
            image[0, 2 + 3 * int(kind == 2) : 5 + 3 * int(kind == 2), 3:7] += 1.0
            image[0, 7, 2:8] += 0.5 * float(kind == 1)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        image = self.images[index]
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, self.kinds[index]


loader = DataLoader(Shapes(480), batch_size=24, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(10):
    for image, kind in loader:
        loss = nn.functional.cross_entropy(net(image), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
