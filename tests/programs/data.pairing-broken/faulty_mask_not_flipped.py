"""Images are mirrored at random for augmentation, their masks aren't."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Cells(Dataset):
    def __init__(self, count):
        self.masks = torch.zeros(count, 1, 12, 12)
        for mask in self.masks:
            y, x = torch.randint(0, 9, (2,)).tolist()
            mask[0, y : y + 3, x : x + 3] = 1
        self.images = self.masks + 0.2 * torch.randn(count, 1, 12, 12)

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, index):
        image, mask = self.images[index], self.masks[index]
        if torch.rand(()) < 0.5:  # fault
            image = image.flip(-1)  # fault
        return image, mask


loader = DataLoader(Cells(160), batch_size=16, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for epoch in range(10):
    for image, mask in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(net(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
