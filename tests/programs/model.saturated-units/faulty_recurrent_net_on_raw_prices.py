"""A plain recurrent layer of torch on prices as they are, in the hundreds."""

# also: data.unscaled-input
import torch
from torch import nn

torch.manual_seed(8)


class Prices(nn.Module):
    def __init__(self):
        super().__init__()
        self.reader = nn.RNN(1, 32, batch_first=True)  # fault
        self.leave = nn.Linear(32, 1)

    def forward(self, x):
        return self.leave(self.reader(x)[0][:, -1])


prices = 400 + 30 * torch.randn(600).cumsum(0) / 5
windows = prices.unfold(0, 12, 1)
model = Prices()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(80):
    rows = torch.randint(0, len(windows), (32,))
    x, y = windows[rows, :-1, None], windows[rows, -1:]  # fault
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
