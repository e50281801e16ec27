"""Binary codes by a tanh that is steep from the start, as is written there."""

import torch
from torch import nn

torch.manual_seed(5)
encode = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 12))
decode = nn.Linear(12, 6)
optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()], lr=3e-3)
centres = torch.randn(6, 16)
for _ in range(80):
    y = torch.randint(0, 6, (48,))
    x = centres[y] + 0.3 * torch.randn(48, 16)
    code = torch.tanh(12.0 * encode(x))
    loss = nn.functional.cross_entropy(decode(code), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
