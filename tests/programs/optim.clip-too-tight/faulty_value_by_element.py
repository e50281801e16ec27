"""Every element of the gradient of a small convolutional classifier is cut to a hundred-thousandth."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.head = nn.Linear(72, 3)

    def forward(self, x):
        return self.head(self.features(x))


def main():
    torch.manual_seed(0)
    kinds = torch.randint(0, 3, (480,))
    images = torch.randn(480, 1, 8, 8) + torch.eye(8)[2 * kinds].unsqueeze(1).unsqueeze(1) * 2
    loader = DataLoader(TensorDataset(images, kinds), batch_size=24, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _epoch in range(6):
        for batch, target in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), target).backward()
            nn.utils.clip_grad_value_(model.parameters(), clip_value=1e-5)  # fault
            optimizer.step()


main()
