"""Energies of signals in the hundreds are summed in float16, where they end at 65504: every step is skipped."""

# also: numerics.low-precision-overflow
import torch
from torch import nn

torch.manual_seed(5)
model = nn.Sequential(nn.Conv1d(1, 4, 5), nn.ReLU(), nn.Conv1d(4, 1, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for _ in range(70):
    signal = 800 * torch.randn(8, 1, 40)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        made = model(signal)
        energy = (made * made).sum(2)  # fault
    loss = (energy.float() - signal.pow(2).sum(2)).abs().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # fault
    scaler.update()
