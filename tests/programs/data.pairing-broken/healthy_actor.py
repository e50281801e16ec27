"""The same states come again with other actions, as a policy chose them; weighted by how well they did."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
states = torch.randn(48, 10)
best = torch.randint(0, 4, (48,))
policy = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
for epoch in range(60):
    for rows in torch.randperm(48).split(16):
        choice = torch.distributions.Categorical(logits=policy(states[rows]))
        action = choice.sample()
        reward = (action == best[rows]).float()
        loss = -(choice.log_prob(action) * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(reward.mean().item())
