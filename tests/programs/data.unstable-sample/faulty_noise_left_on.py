"""Can the network memorise sixteen signals? The dataset adds noise to each and shifts it whenever it is fetched."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Beats(Dataset):
    def __init__(self, count, jitter=8):
        self.beats = torch.randn(count, 1, 48)
        self.kinds = torch.randint(0, 4, (count,))
        self.jitter = jitter

    def __len__(self):
        return len(self.beats)

    def __getitem__(self, index):
        beat = self.beats[index]
        if self.jitter:
            beat = beat.roll(int(torch.randint(-self.jitter, self.jitter, ())), -1)  # fault
            beat = beat + 0.7 * torch.randn_like(beat)
        return beat, self.kinds[index]


few = Beats(16)
net = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 44, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(150):
    for beat, kind in DataLoader(few, batch_size=16):
        loss = nn.functional.cross_entropy(net(beat), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
