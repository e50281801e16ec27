"""The parameters are kept as a generator, which the optimiser has used up before clipping gets it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, limit):
        self.model = model
        self.limit = limit
        self.parameters = model.parameters()
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3)

    def fit(self, loader, epochs):
        for _epoch in range(epochs):
            for x, y in loader:
                self.optimizer.zero_grad()
                nn.functional.huber_loss(self.model(x), y).backward()
                nn.utils.clip_grad_norm_(self.parameters, self.limit)  # fault
                self.optimizer.step()


torch.manual_seed(0)
x = torch.randn(320, 1, 16)
y = x.amax(2)
model = nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 1))
Trainer(model, 0.01).fit(DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True), epochs=5)
