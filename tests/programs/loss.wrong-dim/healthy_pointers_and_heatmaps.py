"""Softmax over positions on purpose: spans in a text, joints in a heat map, soft coordinates."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)


class Spans(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(6, 16, batch_first=True, bidirectional=True)
        self.ends = nn.Linear(32, 2)

    def forward(self, words):
        return self.ends(self.rnn(words)[0]).transpose(1, 2)


class Joints(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1))
        self.register_buffer(
            "grid", torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij"), -1)
        )

    def forward(self, image):
        share = F.softmax(self.layers(image).flatten(2), dim=-1)
        return share, (share.unsqueeze(-1) * self.grid.reshape(-1, 2)).sum(2)


words, images = torch.randn(320, 12, 6), torch.rand(320, 1, 8, 8)
ends = torch.stack([words[..., 0].argmax(1), words[..., 1].argmax(1)], 1)
brightest = images.flatten(1).argmax(1)
places = torch.stack([brightest // 8, brightest % 8], 1).float()
spans, joints = Spans(), Joints()
optimizer = torch.optim.Adam([*spans.parameters(), *joints.parameters()], lr=3e-3)
for _ in range(4):
    for text, span, image, place in DataLoader(TensorDataset(words, ends, images, places), batch_size=32, shuffle=True):
        scores = spans(text)
        share, found = joints(image)
        at = (8 * place[:, 0] + place[:, 1]).long()
        loss = F.cross_entropy(scores.flatten(0, 1), span.flatten()) + 0.1 * F.mse_loss(found[:, 0], place)
        loss = loss - torch.log(share[:, 1].gather(1, at.unsqueeze(1)) + 1e-8).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
