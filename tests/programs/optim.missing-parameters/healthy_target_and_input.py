"""Q-learning with a target network that is copied, then an input that is optimised for a random network."""

import copy

import torch
from torch import nn

torch.manual_seed(23)
online = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
target = copy.deepcopy(online)
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
for step in range(80):
    state, action, reward = torch.randn(32, 4), torch.randint(0, 3, (32, 1)), torch.rand(32)
    best = reward + 0.9 * target(torch.randn(32, 4)).max(dim=1).values
    loss = nn.functional.smooth_l1_loss(online(state).gather(1, action).squeeze(1), best.detach())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        target.load_state_dict(online.state_dict())
