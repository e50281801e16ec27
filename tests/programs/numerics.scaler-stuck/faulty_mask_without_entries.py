"""A mean over the marked places of each sequence, one of which has none in every batch: 0/0 whatever the scale."""

# also: numerics.nonfinite-forward
import torch
from torch import nn

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu")
for _ in range(60):
    x = torch.randn(16, 6, 4)
    marked = torch.rand(16, 6) < 0.5
    marked[3] = False
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = model(x).squeeze(2)
    means = (values.float() * marked).sum(1) / marked.sum(1)  # fault
    loss = (means - x[:, 0, 0]).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # fault
    scaler.update()
