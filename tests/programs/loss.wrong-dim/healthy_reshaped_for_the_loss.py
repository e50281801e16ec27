"""Scores are moved and reshaped in every right way: anchors, flattened maps, flattened time, a pooled head."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
kinds = torch.randint(0, 3, (160, 1, 3, 3)).float()
masks = nn.functional.interpolate(kinds, scale_factor=4).squeeze(1).long()
images = nn.functional.one_hot(masks, 3).permute(0, 3, 1, 2) + 0.5 * torch.randn(160, 3, 12, 12)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.pixels = nn.Conv2d(8, 3, 1)
        self.anchors = nn.Conv2d(8, 2 * 3, 1)
        self.pooled = nn.Conv2d(8, 3, 12)
        self.tokens = nn.Linear(8, 3)

    def forward(self, image):
        hidden = self.body(image)
        tokens = self.tokens(hidden.flatten(2).transpose(1, 2))
        return self.pixels(hidden), self.anchors(hidden), self.pooled(hidden).view(-1, 3), tokens


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(6):
    for image, mask in DataLoader(TensorDataset(images, masks), batch_size=8, shuffle=True):
        pixels, anchors, pooled, tokens = model(image)
        flat = mask.view(len(mask), -1)
        loss = nn.functional.cross_entropy(pixels.permute(0, 2, 3, 1).reshape(-1, 3), mask.view(-1))
        loss = loss + nn.functional.cross_entropy(pixels.view(len(mask), 3, -1), flat)
        anchored = anchors.view(len(mask), 2, 3, -1).permute(0, 1, 3, 2).reshape(-1, 3)
        loss = loss + nn.functional.cross_entropy(anchored, torch.stack([flat, flat], 1).view(-1))
        loss = loss + 0.1 * nn.functional.cross_entropy(pooled, mask[:, 6, 6])
        loss = loss + nn.functional.cross_entropy(tokens.reshape(-1, 3), mask.view(-1))
        loss = loss + nn.functional.cross_entropy(tokens.transpose(1, 2), flat)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
