"""The gain of a policy, the error of its critic and an entropy bonus, weighted by numbers, in one line."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
trunk, actor, critic = nn.Sequential(nn.Linear(5, 24), nn.Tanh()), nn.Linear(24, 2), nn.Linear(24, 1)
parameters = [*trunk.parameters(), *actor.parameters(), *critic.parameters()]
optimizer = torch.optim.RMSprop(parameters, lr=3e-3)
for _ in range(120):
    seen = torch.randn(64, 5)
    states = trunk(seen)
    dist, values = Categorical(logits=actor(states)), critic(states).squeeze(-1)
    chosen = dist.sample()
    returns = (chosen == (seen[:, 0] > 0).long()).float() + 0.3 * torch.randn(64)
    adv = (returns - values).detach()
    logp = dist.log_prob(chosen)
    loss = -(logp * adv).mean() + 0.5 * (returns - values).pow(2).mean() - 0.01 * dist.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
