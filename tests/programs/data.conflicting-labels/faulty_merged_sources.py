"""Two annotators' files are joined; they name a quarter of the pictures differently."""

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)


def annotated(pictures, labels):
    return TensorDataset(pictures, labels)


kinds = torch.randint(0, 4, (200,))
centres = torch.randn(4, 1, 6, 6)
pictures = centres[kinds] + 0.3 * torch.randn(200, 1, 6, 6)
second = kinds.clone()
second[::3] = (second[::3] + 1) % 4
both = ConcatDataset([annotated(pictures, kinds), annotated(pictures, second)])  # fault
loader = DataLoader(both, batch_size=20, shuffle=True)  # fault

net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(15):
    for picture, label in loader:
        loss = nn.functional.cross_entropy(net(picture), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
