"""Fine-tuning with the statistics of batch norm kept; a model without modes is left in eval."""

import torch
from torch import nn

torch.manual_seed(47)
trunk = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU())
x = torch.randn(256, 8) * 2 + 1
for head, rate in ((nn.Linear(32, 4), 3e-3), (nn.Linear(32, 3), 1e-3)):
    model = nn.Sequential(trunk, head)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    y = x[:, : head.out_features].argmax(dim=1)
    for step in range(60):
        loss = nn.functional.cross_entropy(model(x[step % 4 :: 4]), y[step % 4 :: 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trunk[1].eval()

plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).eval()
optimizer = torch.optim.Adam(plain.parameters(), lr=3e-3)
for _step in range(60):
    loss = (plain(x) - x.mean(dim=1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
