"""Scores of every pixel are flattened with view, so that a row holds one class at several pixels."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
kinds = torch.randint(0, 3, (160, 1, 3, 3)).float()
masks = nn.functional.interpolate(kinds, scale_factor=4).squeeze(1).long()
images = nn.functional.one_hot(masks, 3).permute(0, 3, 1, 2) + 0.5 * torch.randn(160, 3, 12, 12)

model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(8):
    for image, mask in DataLoader(TensorDataset(images, masks), batch_size=8, shuffle=True):
        scores = model(image)
        loss = nn.functional.cross_entropy(scores.view(-1, 3), mask.view(-1))  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
