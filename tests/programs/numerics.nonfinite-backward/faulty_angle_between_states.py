"""The angle between two states of a recurrent network by acos, whose slope at 1 is infinite."""

import torch
from torch import nn


def angle(left, right):
    cosine = nn.functional.cosine_similarity(left, right, dim=1).clamp(-1.0, 1.0)
    return torch.acos(cosine)  # fault


class Turning(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 1)

    def forward(self, x):
        state = x.new_zeros(len(x), 1)
        states = []
        for now in x.unbind(1):
            state = self.cell(now, state)
            states.append(state)
        return angle(states[0], states[-1])


def main():
    torch.manual_seed(1)
    model = Turning()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for _ in range(10):
        x = torch.randn(8, 5, 3)
        loss = (model(x) - 1.0).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
