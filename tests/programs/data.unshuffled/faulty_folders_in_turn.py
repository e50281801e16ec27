"""Files are listed folder by folder: all of one kind, then all of the other; a function builds the loaders."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Folder(Dataset):
    def __init__(self, counts, seed):
        generator = torch.Generator().manual_seed(seed)
        self.items = []
        for kind, count in enumerate(counts):
            for _ in range(count):
                image = torch.randn(1, 8, 8, generator=generator)
                image[:, 4 * kind : 4 * kind + 4] += 0.4
                self.items.append((image, float(kind)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        image, kind = self.items[index]
        return {"image": image, "kind": torch.tensor([kind])}


def make_loaders(size):
    train = DataLoader(Folder((160, 160), 0), batch_size=size, shuffle=False, drop_last=True)  # fault
    valid = DataLoader(Folder((40, 40), 1), batch_size=size)
    return train, valid


def main():
    train, valid = make_loaders(16)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(6):
        for batch in train:
            optimizer.zero_grad()
            loss = criterion(net(batch["image"]), batch["kind"])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = sum(((net(b["image"]) > 0).float() == b["kind"]).sum().item() for b in valid)
        print(epoch, loss.item(), right / 80)


main()
