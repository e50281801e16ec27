"""A backbone is frozen while the optimiser is made from what is trainable; later it is released, in vain."""

import torch
from torch import nn

torch.manual_seed(20)
backbone, head = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU()), nn.Linear(16, 8)
x = torch.randn(512, 8)
before = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=3e-3)
for _step in range(100):
    loss = (head(backbone(x)) - x.flip(1)).pow(2).mean()
    before.zero_grad()
    loss.backward()
    before.step()

model = nn.Sequential(backbone, nn.Linear(16, 3))
for parameter in backbone.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)  # fault
y = x[:, :3].argmax(dim=1)
for step in range(200):
    if step == 60:
        for parameter in backbone.parameters():
            parameter.requires_grad = True
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
