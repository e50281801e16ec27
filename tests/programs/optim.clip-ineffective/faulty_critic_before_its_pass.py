"""Two networks play against each other; the clipping of the critic stands before its backward pass."""

import torch
from torch import nn

torch.manual_seed(2)
maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
for_maker = torch.optim.Adam(maker.parameters(), lr=1e-3)
for_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
entropy = nn.functional.binary_cross_entropy_with_logits
for _ in range(60):
    real = torch.randn(32, 2) + 2
    made = maker(torch.randn(32, 4))
    for_critic.zero_grad()
    loss = entropy(critic(real), torch.ones(32, 1)) + entropy(critic(made.detach()), torch.zeros(32, 1))
    nn.utils.clip_grad_norm_(critic.parameters(), 0.01)  # fault
    loss.backward()
    for_critic.step()
    for_maker.zero_grad()
    entropy(critic(made), torch.ones(32, 1)).backward()
    nn.utils.clip_grad_norm_(maker.parameters(), 0.01)
    for_maker.step()
