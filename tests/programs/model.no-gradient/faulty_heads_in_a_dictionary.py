"""One head per task, kept in a plain dictionary."""

# also: optim.missing-parameters
import torch
from torch import nn

torch.manual_seed(37)


class MultiTask(nn.Module):
    def __init__(self, tasks: dict[str, int]) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(9, 32), nn.ReLU())
        self.heads = {name: nn.Linear(32, classes) for name, classes in tasks.items()}  # fault

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        h = self.trunk(x)
        return {name: head(h) for name, head in self.heads.items()}


def main() -> None:
    model = MultiTask({"sign": 2, "largest": 3})
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(60):
        x = torch.randn(32, 9)
        out = model(x)
        loss = nn.functional.cross_entropy(out["sign"], (x[:, 0] > 0).long())
        loss = loss + nn.functional.cross_entropy(out["largest"], x[:, 3:6].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
