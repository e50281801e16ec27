"""A discrete bottleneck: Gumbel-softmax codes go into a linear layer; a categorical policy from probabilities."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(2)


class Bottleneck(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(8, 2 * 6)
        self.decode = nn.Linear(2 * 6, 8)
        self.act = nn.Linear(8, 3)

    def forward(self, x, heat):
        codes = F.gumbel_softmax(self.encode(x).view(-1, 2, 6), tau=heat, hard=True)
        return self.decode(codes.flatten(1)), F.softmax(self.act(x), dim=-1)


model = Bottleneck()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
kinds = torch.randn(9, 8)
for step in range(120):
    x = kinds[torch.randint(0, 9, (64,))] + 0.1 * torch.randn(64, 8)
    again, probabilities = model(x, max(0.5, 1 - step / 100))
    chosen = Categorical(probs=probabilities)
    action = chosen.sample()
    gain = (action == x[:, :3].argmax(-1)).float()
    loss = (
        F.mse_loss(again, x) - (chosen.log_prob(action) * (gain - gain.mean())).mean() - 0.01 * chosen.entropy().mean()
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
