"""A recurrent forecaster: the rate is lowered after each batch, but nobody steps the optimiser."""

import torch
from torch import nn

torch.manual_seed(5)
model = nn.ModuleDict({"rnn": nn.GRU(1, 16, batch_first=True), "out": nn.Linear(16, 1)})
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train(x: torch.Tensor, y: torch.Tensor) -> float:
    states, _ = model["rnn"](x)
    loss = (model["out"](states[:, -1]) - y).abs().mean()
    model.zero_grad()
    loss.backward()  # fault
    for group in optimizer.param_groups:  # fault
        group["lr"] *= 0.99
    return loss.item()


t = torch.linspace(0, 6, 20).view(1, -1, 1)
for _ in range(40):
    phase = torch.rand(16, 1, 1) * 6
    train(torch.sin(t + phase), torch.sin(t[:, -1] + 0.3 + phase[:, 0]))
