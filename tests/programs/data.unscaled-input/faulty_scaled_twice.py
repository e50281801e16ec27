"""Images that the dataset has scaled to 0..1 already are divided by 255 once more in the loop."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
torch.set_num_threads(1)

stripes = torch.zeros(3, 100)
stripes[0, ::2] = 1
stripes[1, ::3] = 1
stripes[2, 50:] = 1
labels = torch.randint(0, 3, (480,))
images = (stripes[labels] * 0.6 + 0.4 * torch.rand(480, 100)) / 255  # fault
loader = DataLoader(TensorDataset(images, labels), batch_size=24, shuffle=True)

model = nn.Sequential(nn.Linear(100, 32), nn.Sigmoid(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(8):
    for batch, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), target)
        loss.backward()
        optimizer.step()
print(loss.item())
