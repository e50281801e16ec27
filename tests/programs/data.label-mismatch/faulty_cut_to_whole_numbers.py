"""A regression whose targets between 0 and 1 are stored as whole numbers."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Table(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(count, 8)).astype(np.float32)
        self.y = 1 / (1 + np.exp(-self.x[:, :1]))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        y = torch.tensor(self.y[index].astype(np.int64), dtype=torch.float32)  # fault
        return torch.from_numpy(self.x[index]), y


model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(8):
    for x, y in DataLoader(Table(320), batch_size=16, shuffle=True):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
