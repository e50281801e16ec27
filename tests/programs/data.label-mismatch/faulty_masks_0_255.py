"""Masks as they are stored, 0 and 255, go into a binary cross entropy."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Cells(Dataset):
    def __init__(self, count):
        self.masks = torch.zeros(count, 1, 12, 12, dtype=torch.uint8)
        for mask in self.masks:
            y, x = torch.randint(0, 7, (2,)).tolist()
            mask[0, y : y + 5, x : x + 5] = 255
        self.images = self.masks.float() / 255 + 0.3 * torch.randn(count, 1, 12, 12)

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, index):
        return self.images[index], self.masks[index].float()  # fault


net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(5):
    for image, mask in DataLoader(Cells(160), batch_size=16, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(net(image), mask)
        loss.backward()
        optimizer.step()
print(loss.item())
