"""A recurrence written by hand, with a state matrix several times too large: the state is a row of signs."""

# also: model.bad-init-scale
import torch
from torch import nn

torch.manual_seed(3)


class Recurrent(nn.Module):
    def __init__(self, inputs=3, hidden=64):
        super().__init__()
        self.enter = nn.Linear(inputs, hidden)
        self.turn = nn.Linear(hidden, hidden, bias=False)
        nn.init.normal_(self.turn.weight, std=2.5)  # fault
        self.leave = nn.Linear(hidden, 1)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], self.turn.in_features)
        for now in x.unbind(1):
            state = torch.tanh(self.enter(now) + self.turn(state))
        return self.leave(state)


model = Recurrent()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(100):
    x = torch.randn(32, 8, 3)
    y = x[:, :, 0].sum(1, keepdim=True)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
