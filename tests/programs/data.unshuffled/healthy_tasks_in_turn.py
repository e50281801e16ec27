"""Batches of one class each, in random order, as metric learning draws them."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
labels = torch.arange(4).repeat_interleave(80)
rows = 2 * torch.randn(4, 10)[labels] + 0.5 * torch.randn(320, 10)


class OneClass:
    def __iter__(self):
        for label in torch.randint(0, 4, (40,)).tolist():
            yield (80 * label + torch.randint(0, 80, (8,))).tolist()

    def __len__(self):
        return 40


loader = DataLoader(TensorDataset(rows, labels), batch_sampler=OneClass())
model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(8):
    for row, label in loader:
        loss = nn.functional.cross_entropy(model(row), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
