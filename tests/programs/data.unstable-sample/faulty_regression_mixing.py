"""A handful of spectra to be fitted exactly, as a check; each one is resampled and scaled at random on the way."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Spectra(Dataset):
    def __init__(self, n):
        self.rng = np.random.default_rng(0)
        self.curves = self.rng.normal(size=(n, 30)).astype(np.float32)
        self.values = self.rng.normal(size=(n, 1)).astype(np.float32)

    def __len__(self):
        return len(self.curves)

    def __getitem__(self, i):
        curve = self.curves[i]
        keep = self.rng.random(30) > 0.4  # fault
        curve = curve * keep * self.rng.uniform(0.5, 1.5)
        return torch.from_numpy(curve.astype(np.float32)), torch.from_numpy(self.values[i])


loader = DataLoader(Spectra(20), batch_size=20, shuffle=True)
model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(250):
    for curve, value in loader:
        loss = nn.functional.mse_loss(model(curve), value)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
