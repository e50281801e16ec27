"""An actor-critic whose log-probabilities keep a dimension that the advantages don't have."""

import torch
from torch import nn

torch.manual_seed(3)
actor = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 4))
critic = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)


def losses(states, actions, returns):
    values = critic(states).squeeze(-1)
    advantages = (returns - values).detach()
    chosen = torch.log_softmax(actor(states), dim=-1).gather(1, actions)
    policy_loss = -(chosen * advantages).mean()  # fault
    value_loss = ((values - returns) ** 2).mean()
    return policy_loss + 0.5 * value_loss


for _ in range(80):
    states = torch.randn(40, 5)
    with torch.no_grad():
        actions = torch.multinomial(actor(states).softmax(-1), 1)
    returns = (actions.squeeze(1) == states[:, :4].argmax(1)).float()
    optimizer.zero_grad()
    losses(states, actions, returns).backward()
    optimizer.step()
