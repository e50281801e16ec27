"""Files are listed in the order of their names (0, 1, 10, 11, ...), labels in the order of their numbers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)
labels = torch.randint(0, 3, (300,))
patterns = torch.randn(3, 1, 6, 6)
files = {f"scan_{n}.png": patterns[label] + 0.4 * torch.randn(1, 6, 6) for n, label in enumerate(labels)}


class Scans(Dataset):
    def __init__(self, files, labels):
        self.names = sorted(files)  # fault
        self.labels = labels.tolist()

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return files[self.names[index]], self.labels[index]  # fault


loader = DataLoader(Scans(files, labels), batch_size=20, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(10):
    for image, label in loader:
        loss = nn.functional.cross_entropy(net(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
