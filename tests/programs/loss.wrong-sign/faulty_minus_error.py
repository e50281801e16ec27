"""The negative of the cross-entropy, in a method of a trainer."""

import torch
from torch import nn


class Trainer:
    def __init__(self, model):
        self.model = model
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def objective(self, x, y):
        return -self.criterion(self.model(x), y)  # fault

    def fit(self, x, y, epochs):
        for _epoch in range(epochs):
            for rows in torch.randperm(len(x)).split(25):
                self.optimizer.zero_grad()
                self.objective(x[rows], y[rows]).backward()
                self.optimizer.step()


torch.manual_seed(1)
x = torch.randn(500, 6)
Trainer(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))).fit(x, (x.sum(1) > 0).long(), 5)
# also: numerics.nonfinite-forward
