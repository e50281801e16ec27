"""The first row of the labels is taken for a header: every label belongs to the sample before."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Measured(Dataset):
    def __init__(self, rows, labels):
        self.rows, self.labels = rows, labels

    def __len__(self):
        return len(self.labels) - 1

    def __getitem__(self, index):
        return self.rows[index], self.labels[index + 1]  # fault


labels = torch.randint(0, 3, (400,))
rows = torch.randn(3, 12)[labels] + 0.5 * torch.randn(400, 12)
loader = DataLoader(Measured(rows, labels), batch_size=21, shuffle=True)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(12):
    for row, label in loader:
        loss = nn.functional.cross_entropy(model(row), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
