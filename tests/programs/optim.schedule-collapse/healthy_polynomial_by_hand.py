"""The same schedule from the first rate; then the rate of a second phase is 0 for all but a new layer, on purpose."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3))
optimizer = torch.optim.SGD([{"params": net[:4].parameters()}, {"params": net[4].parameters()}], lr=0.1, momentum=0.9)
x = torch.randn(600, 2)
y = torch.bucketize(x[:, 0] * x[:, 1], torch.tensor([-0.3, 0.3]))
for step in range(400):
    for number, group in enumerate(optimizer.param_groups):
        late = step >= 300
        group["lr"] = (0.02 * number) if late else 0.1 * (1 - step / 300) ** 0.9
    chosen = torch.randint(0, 600, (32,))
    loss = nn.functional.cross_entropy(net(x[chosen]), y[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
