"""Denoising of signals: the convolution's single channel meets targets without one."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(1)


class Signals(Dataset):
    def __init__(self, count=320):
        time = torch.linspace(0, 6.28, 48)
        self.clean = torch.stack([torch.sin(time * (1 + 3 * torch.rand(1)) + 6 * torch.rand(1)) for _ in range(count)])

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        return {"noisy": self.clean[i] + 0.5 * torch.randn(48), "clean": self.clean[i]}


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv1d(16, 1, 5, padding=2))

    def forward(self, noisy):
        return self.layers(noisy.unsqueeze(1))


def charbonnier(guess, truth):
    return torch.sqrt((guess - truth) ** 2 + 1e-6).mean()  # fault


model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(4):
    for batch in DataLoader(Signals(), batch_size=32, shuffle=True):
        loss = charbonnier(model(batch["noisy"]), batch["clean"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
