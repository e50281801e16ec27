"""Binary codes learnt by a tanh that is made steeper as training goes on, until nearly every value is at an end."""

import torch
from torch import nn

torch.manual_seed(5)
encode = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 12))
decode = nn.Linear(12, 6)
optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()], lr=3e-3)
centres = torch.randn(6, 16)
for step in range(260):
    y = torch.randint(0, 6, (48,))
    x = centres[y] + 0.3 * torch.randn(48, 16)
    code = torch.tanh((1.0 + step / 20) * encode(x))
    loss = nn.functional.cross_entropy(decode(code), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
