"""Galaxy types by a small convolutional network whose log-softmax goes over the batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Galaxies(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(200, 4))
        self.finish = nn.LogSoftmax(dim=0)  # fault

    def forward(self, image):
        return self.finish(self.layers(image))  # fault


labels = torch.randint(0, 4, (400,))
images = torch.randn(400, 1, 12, 12)
images[torch.arange(400), 0, labels, labels] += 4
model = Galaxies()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = nn.NLLLoss()
for _ in range(5):
    for x, y in DataLoader(TensorDataset(images, labels), batch_size=40, shuffle=True):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
