"""With a factor of 1e-12 the gradients lie below the eps of Adam."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
tokens = torch.randint(0, 20, (640, 6))
kinds = (tokens == 3).any(1).long()
model = nn.Sequential(nn.Embedding(20, 12), nn.Flatten(), nn.Linear(72, 32), nn.ReLU(), nn.Linear(32, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
weight = 1e-12
for _epoch in range(8):
    for row, kind in DataLoader(TensorDataset(tokens, kinds), batch_size=32, shuffle=True):
        output = model(row)
        loss = weight * criterion(output, kind)  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
