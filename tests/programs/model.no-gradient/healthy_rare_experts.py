"""A mixture that routes each sample to its best expert, weighted by its probability; one expert is hardly used."""

import torch
from torch import nn

torch.manual_seed(41)


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 4)
        with torch.no_grad():
            self.router.bias.copy_(torch.tensor([0.5, 0.5, 0.5, -1.5]))
        self.experts = nn.ModuleList([nn.Linear(6, 1) for _ in range(4)])
        self.refine = nn.Linear(1, 1)
        self.later = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, refine: bool = False) -> torch.Tensor:
        best, chosen = torch.softmax(self.router(x), dim=1).max(dim=1)
        out = torch.zeros(len(x), 1)
        for index, expert in enumerate(self.experts):
            mine = (chosen == index).nonzero().squeeze(1)
            if len(mine):
                out = out.index_add(0, mine, best[mine].unsqueeze(1) * expert(x[mine]))
        return self.refine(out) if refine else out


model = Mixture()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(120):
    x = torch.randn(16, 6)
    loss = (model(x, refine=step > 10_000) - x[:, :1].abs()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
