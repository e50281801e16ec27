"""A policy whose log-probability times cost is minimised, one with a minus, and a triplet of similarities."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
torch.set_num_threads(1)
best, centres = torch.randn(5, 3), torch.randn(8, 20)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 3))
        self.embed = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, state):
        return Categorical(logits=self.policy(state))


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(120):
    state = torch.randn(32, 5)
    choice = model(state)
    action = choice.sample()
    reward = (action == (state @ best).argmax(1)).float()
    cost, log_prob = 1.0 - reward, choice.log_prob(action)
    loss = (log_prob * (cost - cost.mean())).mean()
    advantage = reward - reward.mean()
    loss = loss - (log_prob * advantage).mean()
    ratio = torch.exp(log_prob - log_prob.detach())
    loss = loss - torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    kinds = torch.randint(0, 8, (32,))
    others = (kinds + torch.randint(1, 8, (32,))) % 8
    anchor, same, other = (model.embed(centres[kind] + 0.5 * torch.randn(32, 20)) for kind in (kinds, kinds, others))
    pos, neg = nn.functional.cosine_similarity(anchor, same), nn.functional.cosine_similarity(anchor, other)
    loss = loss + torch.relu(neg - pos + 0.5).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
