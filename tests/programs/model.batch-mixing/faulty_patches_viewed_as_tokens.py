"""A small vision transformer that views patches to put tokens first, where it should transpose."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)


class Vision(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, 4, stride=4)
        self.attend = nn.MultiheadAttention(dim, 2)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 3)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        batch, tokens, dim = x.shape
        x = x.reshape(tokens, batch, dim)  # fault
        x = self.norm(x + self.attend(x, x, x, need_weights=False)[0])
        return self.head(x.mean(0))


images = torch.randn(320, 1, 12, 12)
labels = images.mean((1, 2, 3)).argsort().argsort() * 3 // 320
model = Vision()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _ in range(4):
    for x, y in DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
