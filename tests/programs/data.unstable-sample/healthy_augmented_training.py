"""Augmentation in a training proper: several batches, and an evaluation beside it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)
centres = torch.randn(3, 12)


class Noisy(Dataset):
    def __init__(self, count, noise):
        self.kinds = torch.randint(0, 3, (count,))
        self.rows = centres[self.kinds] + 0.5 * torch.randn(count, 12)
        self.noise = noise

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index] + self.noise * torch.randn(12), self.kinds[index]


train, test = DataLoader(Noisy(200, 1.0), batch_size=20, shuffle=True), DataLoader(Noisy(60, 0.0), batch_size=60)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(30):
    for rows, kinds in train:
        loss = nn.functional.cross_entropy(model(rows), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = sum((model(rows).argmax(1) == kinds).sum().item() for rows, kinds in test)
print(loss.item(), right)
