"""A learned linear dynamical system, unrolled for forty steps without clipping."""

import torch
from torch import nn

torch.manual_seed(5)
truth = torch.linalg.qr(torch.randn(6, 6)).Q * 0.98
transition = nn.Linear(6, 6, bias=False)
optimizer = torch.optim.SGD(transition.parameters(), lr=0.02)
for _ in range(400):
    state = torch.randn(24, 6)
    real, loss = state, torch.zeros(())
    for _ in range(40):
        state, real = transition(state), real @ truth.t()
        loss = loss + (state - real).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
