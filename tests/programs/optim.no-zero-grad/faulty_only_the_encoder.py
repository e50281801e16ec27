"""An autoencoder: the loop clears the gradients of the encoder only."""

import torch
from torch import nn

torch.manual_seed(14)
encoder = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))
decoder = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 12))
optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.02)
basis = torch.randn(3, 12)
for _step in range(120):
    x = torch.randn(32, 3) @ basis
    encoder.zero_grad()  # fault
    loss = (decoder(encoder(x)) - x).pow(2).mean()
    loss.backward()
    optimizer.step()
