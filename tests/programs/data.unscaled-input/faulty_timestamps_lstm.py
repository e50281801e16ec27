"""Sequences whose first channel is a clock in seconds, given to a recurrent network."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
torch.set_num_threads(1)


def sessions(count):
    label = torch.randint(0, 2, (count,))
    clock = 1000.0 + 60 * torch.arange(12).float().repeat(count, 1) + 5 * torch.rand(count, 1)
    signal = torch.sin(torch.arange(12) * (0.5 + label[:, None])) + 0.1 * torch.randn(count, 12)
    series = torch.stack([clock, signal], 2)
    return series, label  # fault


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(2, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, series):
        out, _ = self.cell(series)
        return self.head(out[:, -1])


series, label = sessions(400)
loader = DataLoader(TensorDataset(series, label), batch_size=20, shuffle=True)
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(8):
    for batch, target in loader:
        loss = nn.functional.cross_entropy(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
