"""A model that returns a detached prediction: ``backward`` raises."""

# dies
import torch
from torch import nn

torch.manual_seed(50)


class Forecast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(2, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.rnn(x)
        return self.out(states[:, -1]).detach()  # fault


model = Forecast()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _step in range(5):
    x = torch.randn(8, 6, 2)
    loss = nn.functional.mse_loss(model(x), x.sum(dim=(1, 2)).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
