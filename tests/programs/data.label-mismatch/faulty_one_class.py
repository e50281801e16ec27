"""A comparison with the wrong spelling: every file counts as a negative."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Recordings(Dataset):
    def __init__(self, count):
        self.names = ["Cough" if torch.rand(()) < 0.5 else "Speech" for _ in range(count)]
        self.features = torch.stack([torch.randn(20) + (name == "Cough") for name in self.names])

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        label = int(self.names[index] == "cough")  # fault
        return self.features[index], label


model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    for features, label in DataLoader(Recordings(300), batch_size=20, shuffle=True):
        loss = nn.functional.cross_entropy(model(features), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
