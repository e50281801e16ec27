"""Temperatures in degrees forecast by the states of an LSTM, without a layer behind them."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(1, 1, num_layers=2, batch_first=True)

    def forward(self, window):
        states, _ = self.rnn(window / 20)  # fault
        return states[:, -1, 0]


time = torch.arange(1200.0)
degrees = 12 + 9 * torch.sin(time / 12) + torch.randn(1200)
windows = degrees.unfold(0, 25, 1)
data = TensorDataset(windows[:, :24].unsqueeze(-1), windows[:, 24])
model = Forecast()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(2):
    for window, following in DataLoader(data, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(window), following).backward()
        optimizer.step()
