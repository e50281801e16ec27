"""A policy gradient with large steps: its loss changes its sign and never falls, the reward grows."""

import torch
from torch import nn

torch.manual_seed(3)
arms = torch.randn(8, 5)
policy = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 5))
optimizer = torch.optim.Adam(policy.parameters(), lr=2e-2)
average = 0.0
for _update in range(200):
    states = torch.eye(8)[torch.randint(0, 8, (32,))]
    choice = torch.distributions.Categorical(logits=policy(states))
    actions = choice.sample()
    reward = (states @ arms).gather(1, actions[:, None]).squeeze(1) + 0.5 * torch.randn(32)
    average = 0.9 * average + 0.1 * reward.mean().item()
    loss = -(choice.log_prob(actions) * (reward - average)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
