"""Values of states are learnt from a replay memory: the same states come again with other targets."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
states = torch.randn(40, 12)
following = torch.randint(0, 40, (40,))
reward = torch.rand(40, 1)
value = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(value.parameters(), lr=3e-3)
for step in range(200):
    rows = torch.randint(0, 40, (16,))
    with torch.no_grad():
        wanted = reward[rows] + 0.9 * value(states[following[rows]])
    loss = nn.functional.mse_loss(value(states[rows]), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
