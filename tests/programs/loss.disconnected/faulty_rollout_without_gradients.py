"""A policy's log-probabilities are kept from a rollout that runs without gradients: ``backward`` raises."""

# dies
import torch
from torch import nn

torch.manual_seed(55)
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)


@torch.no_grad()  # fault
def rollout() -> tuple[torch.Tensor, torch.Tensor]:
    state = torch.randn(32, 4)
    choice = torch.distributions.Categorical(logits=policy(state))
    action = choice.sample()
    return choice.log_prob(action), (action == (state[:, 0] > 0)).float()


for _ in range(40):
    score, reward = rollout()
    loss = -(score * (reward - reward.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
