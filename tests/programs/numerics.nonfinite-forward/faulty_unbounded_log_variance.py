"""A variational autoencoder whose log variance is not bounded: its exponential overflows on loud inputs."""

import torch
from torch import nn


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(8, 6)
        self.decode = nn.Linear(3, 8)

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()  # fault
        divergence = (mean.pow(2) + log_variance.exp() - 1 - log_variance).sum(1)  # fault
        return self.decode(code), divergence


torch.manual_seed(2)
model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(40):
    x = torch.randn(16, 8) * (400.0 if step == 25 else 1.0)
    again, divergence = model(x)
    loss = nn.functional.mse_loss(again, x) + 0.1 * divergence.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
