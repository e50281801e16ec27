"""A small convolutional classifier; its trainer names ``step`` and doesn't call it."""

import torch
from torch import nn

torch.manual_seed(3)


class Fitter:
    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def update(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step  # noqa: B018  # fault
        return loss.item()


images = torch.randn(64, 1, 8, 8)
labels = (images.mean(dim=(1, 2, 3)) > 0).long()
fitter = Fitter(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)))
for epoch in range(10):
    losses = [fitter.update(images[k : k + 16], labels[k : k + 16]) for k in range(0, 64, 16)]
    print(epoch, sum(losses) / len(losses))
