"""A policy gradient: the loss has no floor and changes its sign, gradients are noise."""

import torch
from torch import nn

torch.manual_seed(8)
policy = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
baseline = 0.0
for _ in range(400):
    state = torch.randn(32, 3)
    choice = torch.distributions.Categorical(logits=policy(state))
    action = choice.sample()
    reward = 3.0 * (action == (state[:, 0] > 0).long()).float() + torch.randn(32)
    loss = -((reward - baseline) * choice.log_prob(action)).mean()
    baseline = 0.95 * baseline + 0.05 * reward.mean().item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
