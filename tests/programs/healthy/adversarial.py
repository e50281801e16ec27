"""Two networks against each other in one loop: the losses swing, neither has to fall."""

import torch
from torch import nn

torch.manual_seed(5)
maker = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
for_maker = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.9))
for_judge = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.9))
loss_fn = nn.BCEWithLogitsLoss()
for _ in range(300):
    angle = torch.rand(64, 1) * 6.28
    real = torch.cat([angle.cos(), angle.sin()], 1)
    fake = maker(torch.randn(64, 4))
    judge_loss = loss_fn(judge(real), torch.ones(64, 1)) + loss_fn(judge(fake.detach()), torch.zeros(64, 1))
    for_judge.zero_grad()
    judge_loss.backward()
    for_judge.step()
    maker_loss = loss_fn(judge(fake), torch.ones(64, 1))
    for_maker.zero_grad()
    maker_loss.backward()
    for_maker.step()
