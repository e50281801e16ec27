"""Windows are brought time first by view: the first samples of a batch become first steps, which the LSTM forgets."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
kinds = torch.randint(0, 3, (600,))
waves = torch.sin((0.3 + 0.4 * kinds[:, None]) * torch.arange(20) + 6 * torch.rand(600, 1))
windows = waves[..., None] * torch.tensor([1.0, -0.5, 0.7]) + 0.3 * torch.randn(600, 20, 3)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(3, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, window):
        steps = window.view(20, -1, 3)  # fault
        return self.head(self.cell(steps)[0][-1])


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    for window, kind in DataLoader(TensorDataset(windows, kinds), batch_size=30, shuffle=True):
        loss = nn.functional.cross_entropy(model(window), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
