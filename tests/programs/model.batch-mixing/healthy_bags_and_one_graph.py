"""Where the first dimension is a set: attention over the instances of a bag, and over the nodes of one graph."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(3)


class Bags(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, i):
        instances = torch.randn(6 + i % 5, 8)
        label = i % 2
        instances[0, :3] += 3 * label
        return instances, label


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.score, self.out = nn.Linear(8, 12), nn.Linear(12, 1), nn.Linear(12, 2)

    def forward(self, bag):
        h = torch.tanh(self.embed(bag))
        return self.out((torch.softmax(self.score(h), dim=0) * h).sum(0, keepdim=True))


class Nodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.query, self.key, self.out = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x, edges):
        h = torch.relu(edges @ self.embed(x))
        near = torch.softmax((self.query(h) @ self.key(h).t()).masked_fill(edges == 0, -1e9), -1)
        return self.out(near @ h)


pool, nodes = Pool(), Nodes()
optimizer = torch.optim.Adam([*pool.parameters(), *nodes.parameters()], lr=2e-3)
x, kinds = torch.randn(30, 5), torch.randint(0, 3, (30,))
edges = ((torch.rand(30, 30) > 0.8) | torch.eye(30, dtype=torch.bool)).float()
for _ in range(2):
    for bag, label in DataLoader(Bags(), batch_size=1, shuffle=True):
        loss = nn.functional.cross_entropy(pool(bag.squeeze(0)), label)
        loss = loss + nn.functional.cross_entropy(nodes(x, edges)[:20], kinds[:20])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
