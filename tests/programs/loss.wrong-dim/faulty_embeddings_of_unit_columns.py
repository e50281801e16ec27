"""Two towers for pictures and captions whose embeddings get unit length over the batch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)


class Towers(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, dim))
        self.text = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, dim))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        image = F.normalize(self.image(image), dim=0)  # fault
        text = F.normalize(self.text(text), dim=0)  # fault
        return self.scale.exp() * image @ text.t()


text = torch.randn(480, 8)
image = text @ torch.randn(8, 20) + 0.5 * torch.randn(480, 20)
model = Towers()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _ in range(5):
    for pictures, captions in DataLoader(TensorDataset(image, text), batch_size=48, shuffle=True):
        scores = model(pictures, captions)
        right = torch.arange(len(scores))
        loss = (F.cross_entropy(scores, right) + F.cross_entropy(scores.t(), right)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
