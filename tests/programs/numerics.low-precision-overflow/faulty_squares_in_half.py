"""Under autocast to float16, squares of outputs in the hundreds are larger than the format's largest number."""

import torch
from torch import nn

torch.manual_seed(2)
model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
for step in range(12):
    x = torch.rand(16, 3) * 10 * (1 + step * 80)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        made = model(x)
        sizes = (made * made).mean(1)  # fault
    loss = (sizes.float().add(1).log() - x.pow(2).mean(1).add(1).log()).pow(2).mean()
    loss.backward()
    optimizer.step()
