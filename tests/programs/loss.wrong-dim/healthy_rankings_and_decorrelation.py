"""Over the batch on purpose: listwise ranking of a batch, decorrelated features, entropy of the mean prediction."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)
x = torch.randn(512, 10)
gain = torch.sigmoid(x[:, 0] + x[:, 1] ** 2)
rank = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1))
encode = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 8))
cluster = nn.Linear(8, 4)
optimizer = torch.optim.Adam([*rank.parameters(), *encode.parameters(), *cluster.parameters()], lr=2e-3)
for _ in range(5):
    for rows, wanted in DataLoader(TensorDataset(x, gain), batch_size=64, shuffle=True):
        listwise = -(F.softmax(4 * wanted, 0) * F.log_softmax(rank(rows).squeeze(1), 0)).sum()
        one, other = encode(rows + 0.1 * torch.randn(64, 10)), encode(rows + 0.1 * torch.randn(64, 10))
        cross = F.normalize(one - one.mean(0), dim=0).t() @ F.normalize(other - other.mean(0), dim=0)
        decorrelation = ((cross - torch.eye(8)) ** 2).sum()
        p = F.softmax(cluster(one), dim=1)
        mean = p.mean(0)
        information = (mean * mean.log()).sum() - (p * p.log()).sum(1).mean()
        optimizer.zero_grad()
        (listwise + 0.1 * decorrelation + information).backward()
        optimizer.step()
