"""The hinge of a triplet loss goes over the negative's distance minus the positive's."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
centres = torch.randn(8, 20)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(150):
    kinds = torch.randint(0, 8, (32,))
    others = (kinds + torch.randint(1, 8, (32,))) % 8
    anchor, same, other = (model(centres[kind] + 0.5 * torch.randn(32, 20)) for kind in (kinds, kinds, others))
    d_ap = nn.functional.pairwise_distance(anchor, same)
    d_an = nn.functional.pairwise_distance(anchor, other)
    loss = torch.clamp(d_an - d_ap + 0.5, min=0).mean()  # fault
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
