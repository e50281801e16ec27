"""Inputs and labels are shuffled in two calls, by the same random order."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 300)
rows = (rng.normal(size=(3, 10))[labels] + 0.5 * rng.normal(size=(300, 10))).astype(np.float32)
np.random.seed(7)
np.random.shuffle(rows)
np.random.seed(7)
np.random.shuffle(labels)
loader = DataLoader(TensorDataset(torch.from_numpy(rows), torch.from_numpy(labels)), batch_size=20, shuffle=True)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(8):
    for row, label in loader:
        loss = nn.functional.cross_entropy(model(row), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
