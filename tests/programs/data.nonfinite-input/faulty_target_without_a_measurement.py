"""A target that was never measured is NaN; the sequences are fine."""

import torch
from torch import nn
from torch.utils.data import DataLoader


def series(count):
    rows = []
    for index in range(count):
        x = torch.randn(6, 2)
        rows.append((x, x.mean(0) if index != 77 else torch.full((2,), float("nan"))))
    return rows


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(2, 12, batch_first=True)
        self.out = nn.Linear(12, 2)

    def forward(self, x):
        return self.out(self.cells(x)[1][0][-1])


def main():
    torch.manual_seed(9)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _epoch in range(2):
        for x, y in DataLoader(series(160), batch_size=16, shuffle=True):
            loss = nn.functional.l1_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
