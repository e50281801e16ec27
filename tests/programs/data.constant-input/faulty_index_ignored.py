"""The dataset reads its first row whatever the index is."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Rows(Dataset):
    def __init__(self, count):
        self.table = torch.randn(count, 10)
        self.target = self.table @ torch.randn(10, 1)
        self.cursor = 0

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        row = self.table[self.cursor]  # fault
        return row, self.target[index]


model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(6):
    for row, target in DataLoader(Rows(320), batch_size=16, shuffle=True):
        loss = nn.functional.mse_loss(model(row), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
