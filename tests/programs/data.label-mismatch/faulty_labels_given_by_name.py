"""A language model takes tokens and labels by name and computes its loss; nothing moves the labels on."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Blocks(Dataset):
    def __init__(self):
        steps = torch.randint(1, 4, (2412,))
        self.text = steps.cumsum(0) % 17

    def __len__(self):
        return 400

    def __getitem__(self, index):
        block = self.text[6 * index : 6 * index + 12]
        return {"input_ids": block[:-1], "labels": block[:-1].clone()}  # fault


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(17, 16)
        self.cell = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, 17)

    def forward(self, input_ids, labels=None):
        scores = self.head(self.cell(self.embedding(input_ids))[0])
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())  # fault
        return scores, loss


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(3):
    for batch in DataLoader(Blocks(), batch_size=20, shuffle=True):
        _, loss = model(**batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
