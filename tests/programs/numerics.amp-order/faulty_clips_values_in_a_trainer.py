"""A trainer of its own clips each element at 0.5 while gradients are still 1024 times too large."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def clip(self):
        nn.utils.clip_grad_value_(self.model.parameters(), 0.5)  # fault

    def step(self, images, kinds):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.model(images)
        loss = nn.functional.cross_entropy(logits.float(), kinds)
        self.scaler.scale(loss).backward()
        self.clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


torch.manual_seed(0)
kinds = torch.randint(0, 3, (320,))
images = torch.randn(320, 1, 8, 8) + 1.5 * kinds.view(-1, 1, 1, 1)
model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(24, 3))
trainer = Trainer(model)
for _epoch in range(4):
    for batch in DataLoader(TensorDataset(images, kinds), batch_size=32, shuffle=True):
        trainer.step(*batch)
