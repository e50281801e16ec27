"""A probe on an encoder that was trained before: its weights get gradients, nobody steps them, and that is meant."""

import io

import torch
from torch import nn

torch.manual_seed(22)


def build() -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 12))


x = torch.randn(256, 4) @ torch.randn(4, 12)
teacher = build()
optimizer = torch.optim.Adam(teacher.parameters(), lr=5e-3)
for _step in range(150):
    loss = (teacher(x + 0.3 * torch.randn_like(x)) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
file = io.BytesIO()
torch.save(teacher.state_dict(), file)
file.seek(0)

encoder = build()
encoder.load_state_dict(torch.load(file))
probe = nn.Linear(12, 3)
optimizer = torch.optim.Adam(probe.parameters(), lr=1e-2)
y = x[:, :3].argmax(dim=1)
for _step in range(100):
    loss = nn.functional.cross_entropy(probe(encoder(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
