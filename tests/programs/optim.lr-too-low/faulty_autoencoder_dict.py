"""An autoencoder on batches that are dictionaries; the rate is given per group."""

import torch
from torch import nn
from torch.utils.data import DataLoader


class Curves(torch.utils.data.Dataset):
    def __init__(self, count):
        phase = torch.rand(count, 1) * 6.28
        self.curves = torch.sin(torch.linspace(0, 6.28, 32) * torch.randint(1, 4, (count, 1)) + phase)

    def __len__(self):
        return len(self.curves)

    def __getitem__(self, index):
        return {"curve": self.curves[index]}


torch.manual_seed(5)
encoder = nn.Sequential(nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 6))
decoder = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 32))
optimizer = torch.optim.AdamW([{"params": encoder.parameters()}, {"params": decoder.parameters()}], lr=1e-6)  # fault
for _epoch in range(8):
    for batch in DataLoader(Curves(640), batch_size=32, shuffle=True):
        loss = nn.functional.mse_loss(decoder(encoder(batch["curve"])), batch["curve"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
