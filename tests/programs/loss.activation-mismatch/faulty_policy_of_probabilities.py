"""A policy network's probabilities are passed on as logits."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(8)


class Policy(nn.Module):
    def __init__(self, states=4, actions=3):
        super().__init__()
        self.hidden = nn.Linear(states, 24)
        self.head = nn.Linear(24, actions)

    def forward(self, state):
        scores = self.head(torch.tanh(self.hidden(state)))
        weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
        return weights / weights.sum(-1, keepdim=True)  # fault


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for _ in range(80):
    state = torch.randn(64, 4)
    chosen = Categorical(logits=policy(state))
    action = chosen.sample()
    reward = (action == state[:, :3].argmax(-1)).float()
    loss = -(chosen.log_prob(action) * (reward - reward.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
