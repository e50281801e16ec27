"""Images in 0..1 cleaned by a residual behind a ReLU and clamped at the end; targets lie a little outside."""

import torch
from torch import nn

torch.manual_seed(5)


class Cleaner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 3, padding=1), nn.ReLU()
        )

    def forward(self, image):
        return (image - self.layers(image)).clamp(0, 1)


model = Cleaner()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(100):
    clean = nn.functional.interpolate(torch.rand(8, 1, 5, 5), scale_factor=3.0)
    measured = clean + 0.01 * torch.randn_like(clean)
    noisy = clean + 0.3 * torch.rand_like(clean)
    optimizer.zero_grad()
    nn.functional.l1_loss(model(noisy), measured).backward()
    optimizer.step()
