"""The negative log-likelihood of a density with small scales: far below zero, and right."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(600, 4)
y = x[:, :2] + 0.001 * torch.randn(600, 2)
mean = nn.Linear(4, 2)
log_scale = nn.Parameter(torch.zeros(2))
optimizer = torch.optim.Adam([*mean.parameters(), log_scale], lr=2e-2)
for _epoch in range(30):
    for rows in torch.randperm(600).split(30):
        loss = -torch.distributions.Normal(mean(x[rows]), log_scale.exp()).log_prob(y[rows]).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
