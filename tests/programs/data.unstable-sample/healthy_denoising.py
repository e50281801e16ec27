"""A small set in one batch that is noised anew at each step, as denoising wants it, with an evaluation."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Noised(Dataset):
    def __init__(self, clean, noise):
        self.clean, self.noise = clean, noise

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, index):
        return self.clean[index] + self.noise * torch.randn(16), self.clean[index]


basis = torch.randn(2, 16)
loader = DataLoader(Noised(torch.randn(96, 2) @ basis, 0.5), batch_size=96, shuffle=True)
check = DataLoader(Noised(torch.randn(40, 2) @ basis, 0.5), batch_size=40)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(120):
    for noisy, clean in loader:
        loss = nn.functional.mse_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 20 == 19:
        with torch.no_grad():
            print(epoch, sum(nn.functional.mse_loss(model(noisy), clean).item() for noisy, clean in check))
