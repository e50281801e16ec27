"""Sequences that grow longer: a recurrent network whose loss and gradient rise at every stage, clipped."""

import torch
from torch import nn

torch.manual_seed(4)
rnn, head = nn.GRU(1, 24, batch_first=True), nn.Linear(24, 1)
parameters = [*rnn.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(parameters, lr=5e-3)
for step in range(240):
    x = torch.rand(16, 2 + step // 10, 1)
    loss = nn.functional.mse_loss(head(rnn(x)[0][:, -1]), x.sum(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
