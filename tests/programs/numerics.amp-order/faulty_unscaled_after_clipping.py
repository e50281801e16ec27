"""Two optimisers share a scaler; the second one's gradients are unscaled, but only after they were clipped."""

import torch
from torch import nn

torch.manual_seed(9)
encoder = nn.GRU(3, 16, batch_first=True)
head = nn.Linear(16, 1)
slow = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9)
fast = torch.optim.SGD(head.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
for _ in range(80):
    x = torch.randn(16, 6, 3)
    slow.zero_grad()
    fast.zero_grad()
    loss = nn.functional.mse_loss(head(encoder(x)[0][:, -1]), x[:, -1, :1] + 1.0)
    scaler.scale(loss).backward()
    scaler.unscale_(slow)
    nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
    nn.utils.clip_grad_norm_(head.parameters(), 0.5)  # fault
    scaler.unscale_(fast)
    scaler.step(slow)
    scaler.step(fast)
    scaler.update()
