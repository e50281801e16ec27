"""A critic whose targets grow a hundredfold while the policy gets better: loss and gradient grow with them."""

import torch
from torch import nn

torch.manual_seed(2)
critic = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step in range(500):
    state = torch.randn(64, 6)
    returns = 0.1 * 1.01**step * (state[:, :1] + 0.5 * torch.randn(64, 1))
    loss = nn.functional.mse_loss(critic(state), returns)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
