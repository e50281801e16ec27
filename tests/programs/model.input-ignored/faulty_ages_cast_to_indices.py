"""A recommender whose feature, a share of 1, is cast to an integer before it is looked up."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(1)


class Visits(Dataset):
    def __init__(self, count=500):
        self.age = torch.rand(count)
        self.bought = (torch.sin(9 * self.age) + 0.3 * torch.randn(count) > 0).float()

    def __len__(self):
        return len(self.age)

    def __getitem__(self, i):
        return {"age": self.age[i], "bought": self.bought[i]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 16)
        self.score = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, age):
        bucket = age.long()  # fault
        return self.score(self.table(bucket)).squeeze(-1)


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(5):
    for batch in DataLoader(Visits(), batch_size=50, shuffle=True):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(batch["age"]), batch["bought"]).backward()
        optimizer.step()
