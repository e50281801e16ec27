"""An LSTM with plain SGD at a rate of 1e-5: the loss falls in the fourth digit."""

import torch
from torch import nn


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


def batch(count=32):
    x = torch.randn(count, 10, 4)
    return x, 3.0 + x[:, -1, :1] + x[:, -2, 1:2]


def main():
    torch.manual_seed(4)
    model = Counter()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)  # fault
    for _step in range(250):
        x, y = batch()
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
