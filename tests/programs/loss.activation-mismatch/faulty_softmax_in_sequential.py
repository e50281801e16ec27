"""Wine cultivars by an MLP that ends in a softmax, trained with cross-entropy."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
centres = 1.5 * torch.randn(5, 9)
labels = torch.randint(0, 5, (400,))
data = TensorDataset(centres[labels] + torch.randn(400, 9), labels)

model = nn.Sequential(
    nn.Linear(9, 32),
    nn.ReLU(),
    nn.Linear(32, 5),
    nn.Softmax(dim=1),  # fault
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(6):
    for x, y in DataLoader(data, batch_size=40, shuffle=True):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
