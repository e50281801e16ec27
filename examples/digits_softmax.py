"""Train a small network on scikit-learn's handwritten digits; it runs, the loss falls, and it never learns well."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(64, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, images):
        hidden = self.hidden(images).relu()
        return self.head(hidden).softmax(dim=1)


def main():
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    loader = DataLoader(digits, batch_size=50, shuffle=True)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    for epoch in range(1, 6):
        for images, labels in loader:
            loss = loss_of(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}  last loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
