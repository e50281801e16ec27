"""Repeated measurements: equal inputs with different targets, which a mean describes well."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
doses = torch.randn(25, 20).repeat(16, 1)
response = doses[:, :1] - 0.5 * doses[:, 1:2] + 0.3 * torch.randn(400, 1)
loader = DataLoader(TensorDataset(doses, response), batch_size=20, shuffle=True)
model = nn.Linear(20, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(10):
    for dose, value in loader:
        loss = nn.functional.mse_loss(model(dose), value)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
