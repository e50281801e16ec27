"""Values learned from their own estimates on off-policy transitions, without a target network."""

import torch
from torch import nn

torch.manual_seed(7)
features = torch.randn(50, 16)
following = torch.randint(0, 50, (50,))
network = nn.Sequential(nn.Linear(16, 64), nn.Tanh())
head = nn.Linear(64, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for _ in range(2000):
    state = torch.randint(0, 12, (32,))
    reward = (state % 3).float().unsqueeze(1)
    with torch.no_grad():
        now, then = network(features[state]), network(3.0 * features[following[state]])
        target = reward + 0.99 * head(then)
    loss = nn.functional.mse_loss(head(now), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
