"""A codebook without gradients follows its codes as a moving average; the encoder gets them straight through."""

import torch
from torch import nn

torch.manual_seed(42)


class Quantised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
        self.codes = nn.Embedding(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = self.encoder(x)
        with torch.no_grad():
            index = torch.cdist(z, self.codes.weight).argmin(dim=1)
            used = nn.functional.one_hot(index, 16).float()
            counts = used.sum(dim=0).unsqueeze(1)
            means = used.T @ z / counts.clamp(min=1)
            self.codes.weight.data = torch.where(counts > 0, 0.9 * self.codes.weight + 0.1 * means, self.codes.weight)
            q = self.codes(index)
        return self.decoder(z + (q - z).detach()), (z - q).pow(2).mean()


model = Quantised()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
basis = torch.randn(3, 10)
for _step in range(100):
    x = torch.randn(32, 3) @ basis
    out, commit = model(x)
    loss = (out - x).pow(2).mean() + 0.25 * commit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
