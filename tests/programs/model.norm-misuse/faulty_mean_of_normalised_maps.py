"""A brightness classifier that ends in instance normalisation and global average pooling: the mean is 0 for all."""

# also: model.input-ignored
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(9)


class Brightness(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(1, 16, 3, padding=1)
        self.two = nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.InstanceNorm2d(16, affine=True)  # fault
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.norm(self.two(F.relu(self.one(x))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


model = Brightness()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(60):
    y = torch.randint(0, 3, (16,))
    x = torch.rand(16, 1, 8, 8) + y.view(-1, 1, 1, 1)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
