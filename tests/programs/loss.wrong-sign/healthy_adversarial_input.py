"""An input is made adversarial: the negative of the cross-entropy, on purpose; the model isn't trained."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
x, y = torch.randn(64, 10), torch.randint(0, 3, (64,))
disturbance = torch.zeros(64, 10, requires_grad=True)
optimizer = torch.optim.SGD([disturbance], lr=5.0)
for _step in range(100):
    loss = -nn.functional.cross_entropy(model(x + disturbance), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
