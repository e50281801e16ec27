"""Weight decay by parameter groups: what is neither a bias nor called ``weight`` falls through."""

import torch
from torch import nn

torch.manual_seed(21)


class Pooler(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(4, width) * 0.1)
        self.key = nn.Linear(width, width)
        self.out = nn.Linear(4 * width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = torch.softmax(self.query @ self.key(x).transpose(1, 2), dim=-1)
        return self.out((share @ x).flatten(1))


model = Pooler(24)
decay = [p for name, p in model.named_parameters() if name.endswith("weight")]
plain = [p for name, p in model.named_parameters() if name.endswith("bias")]
optimizer = torch.optim.AdamW(  # fault
    [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],  # fault
    lr=2e-3,
)
for _step in range(80):
    x = torch.randn(16, 10, 24)
    loss = nn.functional.cross_entropy(model(x), (x[:, 0, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
