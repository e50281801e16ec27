"""Every layer is frozen and has a trainable one of low rank beside it, or added to its weight."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Adapted(nn.Module):
    def __init__(self, base, rank=6, merged=False):
        super().__init__()
        self.base, self.merged = base.requires_grad_(False), merged
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        if self.merged:
            return nn.functional.linear(x, self.base.weight + self.up @ self.down, self.base.bias)
        return self.base(x) + x @ self.down.t() @ self.up.t()


model = nn.Sequential(
    Adapted(nn.Linear(10, 48)), nn.GELU(), Adapted(nn.Linear(48, 48), merged=True), nn.GELU(), Adapted(nn.Linear(48, 3))
)
optimizer = torch.optim.AdamW([item for item in model.parameters() if item.requires_grad], lr=5e-3)
points, mix = torch.randn(600, 10), torch.randn(10, 3)
kinds = (points @ mix).argmax(1)
for epoch in range(8):
    for rows in torch.randperm(600).split(30):
        loss = nn.functional.cross_entropy(model(points[rows]), kinds[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
