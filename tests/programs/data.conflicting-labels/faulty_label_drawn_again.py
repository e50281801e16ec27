"""A fifth of the labels is drawn anew whenever a sample is fetched."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Weak(Dataset):
    def __init__(self, count):
        self.labels = torch.randint(0, 3, (count,))
        self.rows = torch.randn(3, 20)[self.labels] + 0.4 * torch.randn(count, 20)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        label = self.labels[index]
        if torch.rand(()) < 0.3:  # fault
            label = torch.randint(0, 3, ())
        return self.rows[index], label


model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(Weak(400), batch_size=20, shuffle=True)
for epoch in range(8):
    for rows, label in loader:
        loss = nn.functional.cross_entropy(model(rows), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
