"""The decoder's first state is computed from the image by a helper, and not given to the decoder."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
words = torch.randint(0, 5, (400, 4))
images = nn.functional.one_hot(words[:, 1:], 5).flatten(1).float() + 0.1 * torch.randn(400, 15)


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(15, 24), nn.ReLU(), nn.Linear(24, 24))
        self.embedding = nn.Embedding(5, 12)
        self.cell = nn.GRU(12, 24, batch_first=True)
        self.head = nn.Linear(24, 5)

    def first_state(self, features):
        return torch.tanh(features).unsqueeze(0)

    def forward(self, image, told):
        features = self.encoder(image)
        self.first_state(features)  # fault
        return self.head(self.cell(self.embedding(told))[0])  # fault


model = Captioner()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(5):
    for image, word in DataLoader(TensorDataset(images, words), batch_size=20, shuffle=True):
        scores = model(image, word[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), word[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
