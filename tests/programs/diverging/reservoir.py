"""A fixed recurrent reservoir that is a little unstable, with a readout trained on its states."""

import torch
from torch import nn

torch.manual_seed(4)
reservoir = nn.RNN(1, 48, nonlinearity="relu", batch_first=True).requires_grad_(False)
nn.init.normal_(reservoir.weight_hh_l0, std=0.24)
readout = nn.Linear(48, 1)
optimizer = torch.optim.SGD(readout.parameters(), lr=1e-4)
for _ in range(500):
    signal = torch.sin(torch.linspace(0, 9, 61) * (0.5 + torch.rand(16, 1))).unsqueeze(2)
    states, _ = reservoir(signal[:, :-1])
    loss = nn.functional.mse_loss(readout(states), signal[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
