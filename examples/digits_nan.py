"""Train a small network on scikit-learn's handwritten digits, with a bonus for not being too sure of itself."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def entropy(logits):
    """How unsure the network is about each image."""
    probabilities = logits.softmax(dim=1)
    return -(probabilities * probabilities.log()).sum(dim=1)


def loss_of(network, images, labels):
    logits = network(images)
    return nn.functional.cross_entropy(logits, labels) - 0.01 * entropy(logits).mean()


def accuracy_of(network, loader):
    network.eval()
    with torch.no_grad():
        right = sum((network(images).argmax(dim=1) == labels).sum().item() for images, labels in loader)
    return right / len(loader.dataset)


def main():
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.tensor(images, dtype=torch.float32), torch.tensor(labels))
    training, test = random_split(digits, [1500, len(digits) - 1500])
    training_loader = DataLoader(training, batch_size=50, shuffle=True)
    test_loader = DataLoader(test, batch_size=100)

    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-2)

    for epoch in range(1, 13):
        network.train()
        for images, labels in training_loader:
            loss = loss_of(network, images, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch:2}  last loss {loss.item():7.4f}  test accuracy {accuracy_of(network, test_loader):.3f}")


if __name__ == "__main__":
    main()
