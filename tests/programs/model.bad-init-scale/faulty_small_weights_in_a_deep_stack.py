"""Eight convolutions with weights of deviation 0.01, as was usual for shallower nets: nothing arrives at the head."""

# also: optim.vanishing-gradient
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(2)


class Deep(nn.Module):
    def __init__(self, channels=16, depth=8):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(1 if i == 0 else channels, channels, 3, padding=1) for i in range(depth))
        self.head = nn.Linear(channels, 3)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.normal_(module.weight, std=0.01)  # fault
                nn.init.zeros_(module.bias)

    def forward(self, x):
        for conv in self.convs:
            x = F.relu(conv(x))
        return self.head(x.mean((2, 3)))


model = Deep()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(60):
    y = torch.randint(0, 3, (16,))
    x = torch.randn(16, 1, 8, 8) + 2.0 * (y.view(-1, 1, 1, 1) - 1)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
