"""A text classifier over bags of words whose loop clears gradients right before the step."""

import torch
from torch import nn

torch.manual_seed(8)
model = nn.Sequential(nn.EmbeddingBag(50, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _step in range(60):
    words = torch.randint(0, 50, (32, 6))
    loss = nn.functional.cross_entropy(model(words), words[:, 0] % 4)
    loss.backward()
    optimizer.zero_grad()  # fault
    optimizer.step()
