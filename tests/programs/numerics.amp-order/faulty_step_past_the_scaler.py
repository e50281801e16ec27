"""The loss is scaled, but the optimiser's own step is called, on gradients that are still scaled."""

import torch
from torch import nn


def train(model, batches, scaler):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for tokens, kind in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens), kind)
        scaler.scale(loss).backward()
        optimizer.step()  # fault


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(30, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, tokens):
        return self.out(self.embed(tokens))


torch.manual_seed(3)
tokens = torch.randint(0, 30, (800, 6))
kinds = (tokens.float().mean(1) > 15).long()
batches = [(tokens[rows], kinds[rows]) for _ in range(4) for rows in torch.randperm(800).split(40)]
train(Bag(), batches, torch.amp.GradScaler("cpu", init_scale=2.0**12))
