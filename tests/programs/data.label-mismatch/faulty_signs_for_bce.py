"""Labels of -1 and 1, as for a support vector machine, with a loss that wants 0 and 1; tensors without a loader."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(400, 6)
y = torch.sign(x[:, 0] - x[:, 1])
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(6):
    for rows in torch.randperm(400).split(20):
        logits = model(x[rows]).squeeze(1)
        wanted = y[rows]  # fault
        loss = nn.functional.binary_cross_entropy_with_logits(logits, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
