"""A ratio that is 0/0 for some rows, which are left out of the mean; and a bad step that the loop drops."""

import torch
from torch import nn

torch.manual_seed(5)
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(120):
    x = torch.randn(32, 5)
    paid, asked = (x[:, 0] > 0).float(), (x[:, 1] > -1).float()
    ratio = paid * asked / asked
    error = (model(x)[:, 0] - ratio.nan_to_num(0.0)).pow(2)
    loss = torch.nanmean(torch.where(ratio.isnan(), ratio, error))
    if step == 40:
        loss = loss / 0.0
    if not torch.isfinite(loss):
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
