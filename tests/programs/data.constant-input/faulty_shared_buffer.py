"""Every sample is written into one buffer, of which all list entries are a view."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Signals(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 2, count)
        self.signals = []
        buffer = np.empty((1, 40), dtype=np.float32)
        for label in self.labels:
            buffer[0] = np.sin(np.arange(40) * (0.3 + 0.3 * label)) + rng.normal(0, 0.1, 40)
            self.signals.append(torch.from_numpy(buffer))  # fault

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.signals[index], int(self.labels[index])


model = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(6):
    for signal, label in DataLoader(Signals(256, 0), batch_size=16, shuffle=True):
        loss = nn.functional.cross_entropy(model(signal), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
