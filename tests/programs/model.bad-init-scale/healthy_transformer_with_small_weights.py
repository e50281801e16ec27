"""Pre-norm blocks with weights of deviation 0.02, and an embedding of deviation 1 that is the head as well."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)


class Block(nn.Module):
    def __init__(self, size=48):
        super().__init__()
        self.first, self.second = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attend = nn.MultiheadAttention(size, 4, batch_first=True)
        self.wide, self.back = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x, mask):
        y = self.first(x)
        x = x + self.attend(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.back(F.gelu(self.wide(self.second(x))))


class Model(nn.Module):
    def __init__(self, letters=20, size=48):
        super().__init__()
        self.blocks = nn.ModuleList(Block(size) for _ in range(4))
        for module in self.blocks.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
        self.embed = nn.Embedding(letters, size)
        self.norm = nn.LayerNorm(size)

    def forward(self, tokens):
        mask = torch.full((tokens.shape[1], tokens.shape[1]), float("-inf")).triu(1)
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x) @ self.embed.weight.T


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _ in range(80):
    start = torch.randint(0, 20, (16, 1))
    tokens = (start + 3 * torch.arange(13)) % 20
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
