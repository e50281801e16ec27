"""Two views are drawn together: the negative of their similarity, with the second one detached."""

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
predictor = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
optimizer = torch.optim.SGD([*encoder.parameters(), *predictor.parameters()], lr=0.05, momentum=0.9)
for _step in range(200):
    x = torch.randn(32, 12)
    one, two = encoder(x + 0.2 * torch.randn_like(x)), encoder(x + 0.2 * torch.randn_like(x))
    loss = -nn.functional.cosine_similarity(predictor(one), two.detach(), dim=1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
