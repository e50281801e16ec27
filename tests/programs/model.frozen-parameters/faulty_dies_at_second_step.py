"""The critic is frozen for the generator's pass and never switched on: its second own pass has no graph."""

# dies
import torch
from torch import nn

torch.manual_seed(36)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(critic.parameters(), lr=1e-3)
for _step in range(20):
    fake = generator(torch.randn(32, 4))
    scores = critic(torch.cat([torch.randn(32, 2) + 1, fake.detach()]))
    wanted = torch.cat([torch.ones(32, 1), torch.zeros(32, 1)])
    opt_d.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(scores, wanted).backward()
    opt_d.step()
    critic.requires_grad_(False)  # fault
    opt_g.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(critic(fake), torch.ones(32, 1)).backward()
    opt_g.step()
