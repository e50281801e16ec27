"""The loss was copied from a tagger, where 0 is padding; here 0 is the first of four classes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
kinds = torch.randint(0, 4, (400,))
rows = torch.randn(4, 12)[kinds] + 0.5 * torch.randn(400, 12)
loader = DataLoader(TensorDataset(rows, kinds), batch_size=20, shuffle=True)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
criterion = nn.CrossEntropyLoss(ignore_index=0)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(8):
    for row, kind in loader:
        loss = criterion(model(row), kind)  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
