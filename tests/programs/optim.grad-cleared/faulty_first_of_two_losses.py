"""Each of two losses has its pass, and each pass its clearing: what only the first loss trains stands still."""

import torch
from torch import nn

torch.manual_seed(0)
reader = nn.Sequential(nn.Linear(12, 24), nn.ReLU())
writer, judge = nn.Linear(24, 12), nn.Linear(24, 1)
parameters = [*reader.parameters(), *writer.parameters(), *judge.parameters()]
optimizer = torch.optim.Adam(parameters, lr=2e-3)
x = torch.randn(512, 12)
y = x[:, :1] * x[:, 1:2]
for _ in range(8):
    for chosen in torch.randperm(512).split(64):
        copied = (writer(reader(x[chosen])) - x[chosen]).pow(2).mean()
        told = (judge(reader(x[chosen])) - y[chosen]).pow(2).mean()
        optimizer.zero_grad()
        copied.backward()
        optimizer.zero_grad()  # fault
        told.backward()
        optimizer.step()
