"""The op, line, step and sample are named whatever shape the training loop has."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.session.watching import watch

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 1)
    def forward(self, x):
        return self.head(self.body(x))

X = torch.randn(60, 4)
Y = torch.rand(60, 1) + 1
X[:, 3] = 1.0
BAD = 35  # sample 5 of the fourth batch

def safe(value):
    return value * 1.0

def scaled(pred, y, kill):
    ratio = pred / (y - kill)  # HERE
    return ratio

def criterion(pred, y, kill=0.0):
    return safe(scaled(pred, y, kill)).pow(2).mean()
"""
# with kill = y at one sample, the division makes infinity; the loss is inf and every gradient NaN
DATA = """
from torch.utils.data import DataLoader, TensorDataset
KILL = torch.zeros(60, 1)
KILL[BAD] = Y[BAD]
loader = DataLoader(TensorDataset(X, Y, KILL), batch_size=10)
"""

SHAPES = {
    "module level": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(2):
            for x, y, k in loader:
                loss = criterion(model(x), y, k)
                opt.zero_grad()
                loss.backward()
                opt.step()
        """,
    "in a function": """
        def main():
            model = Net(); opt = torch.optim.Adam(model.parameters(), lr=0.01)
            seen = 0.0
            for x, y, k in loader:
                opt.zero_grad()
                out = model(x)
                loss = criterion(out, y, k)
                loss.backward()
                opt.step()
                seen += loss.item()
        main()
        """,
    "method of a trainer class": """
        class Trainer:
            def __init__(self):
                self.model = Net()
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
                self.history = []
            def step(self, batch):
                x, y, k = batch
                self.opt.zero_grad()
                loss = self.loss(x, y, k)
                loss.backward()
                self.opt.step()
                self.history.append(loss.item())
            def loss(self, x, y, k):
                return criterion(self.model(x), y, k)
            def fit(self):
                for batch in loader:
                    self.step(batch)
        Trainer().fit()
        """,
    "step function": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        def step(x, y, k):
            opt.zero_grad()
            loss = criterion(model(x), y, k)
            loss.backward()
            opt.step()
            return loss
        for x, y, k in loader:
            step(x, y, k)
        """,
    "helper that only calls backward": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        def update(loss):
            opt.zero_grad()
            loss.backward()
            opt.step()
        for x, y, k in loader:
            update(criterion(model(x), y, k))
        """,
    "forward in another method": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        def forward(batch):
            x, y, k = batch
            noise = torch.randn_like(x) * 0.01
            pred = model(x + noise)
            return pred, y, k
        for batch in loader:
            pred, y, k = forward(batch)
            loss = criterion(pred, y, k)
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    "batch drawn in the body": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        it = iter(loader)
        for _ in range(6):
            x, y, k = next(it)
            loss = criterion(model(x), y, k)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "drawn inside the call": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        it = iter(loader)
        def step(batch):
            x, y, k = batch
            opt.zero_grad()
            loss = criterion(model(x), y, k)
            loss.backward()
            opt.step()
            return loss.item()
        for _ in range(6):
            value = step(next(it))
        """,
    "accumulation": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for i, (x, y, k) in enumerate(loader):
            loss = criterion(model(x), y, k) / 2
            loss.backward()
            if i % 2 == 1:
                opt.step()
                opt.zero_grad()
        """,
    "closure": """
        model = Net(); opt = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3)
        for x, y, k in loader:
            def closure():
                opt.zero_grad()
                loss = criterion(model(x), y, k)
                loss.backward()
                return loss
            opt.step(closure)
        """,
    "two losses with retain_graph": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for x, y, k in loader:
            pred = model(x)
            opt.zero_grad()
            first = pred.abs().mean()
            first.backward(retain_graph=True)
            loss = criterion(pred, y, k)
            loss.backward()
            opt.step()
        """,
    "two optimisers in turn": """
        model = Net(); other = nn.Linear(1, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        opt2 = torch.optim.SGD(other.parameters(), lr=0.01)
        for x, y, k in loader:
            fake = model(x)
            loss2 = other(fake.detach()).pow(2).mean()
            opt2.zero_grad(); loss2.backward(); opt2.step()
            loss = criterion(fake, y, k) + 0.1 * other(fake).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "hidden state carried over steps": """
        cell = nn.GRUCell(4, 8); head = nn.Linear(8, 1)
        opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
        h = torch.zeros(10, 8)
        for x, y, k in loader:
            h = cell(x, h)
            loss = criterion(head(h), y, k)
            opt.zero_grad(); loss.backward(); opt.step()
            h = h.detach()
        """,
    "rebinds its input": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        count = 0
        log = []
        for x, y, k in loader:
            x = x * 2
            x = (x - x.mean()) / x.std()
            count += 1
            log.append(count)
            pred = model(x)
            loss = criterion(pred, y, k)
            print("loss", loss.item())
            log.append(loss.item())
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "own generator": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        gen = torch.Generator().manual_seed(3)
        for x, y, k in loader:
            pred = model(x)
            noise = torch.randn(pred.shape, generator=gen)
            loss = criterion(pred + 0.1 * noise, y, k)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "autocast": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for x, y, k in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                pred = model(x)
            loss = criterion(pred.float(), y, k)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "compiled": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        compiled = torch.compile(model, backend="aot_eager")
        for x, y, k in loader:
            loss = criterion(compiled(x), y, k)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "functional weights": """
        w = (torch.randn(4, 1) * 0.1).requires_grad_(); b = torch.zeros(1, requires_grad=True)
        opt = torch.optim.SGD([w, b], lr=0.01)
        for x, y, k in loader:
            loss = criterion(x @ w + b, y, k)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "indices instead of a loader": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for start in range(0, 60, 10):
            rows = torch.arange(start, start + 10)
            loss = criterion(model(X[rows]), Y[rows], KILL[rows])
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "try and with around": """
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for x, y, k in loader:
            try:
                with torch.enable_grad():
                    pred = model(x)
                    if pred.mean() > -1000:
                        loss = criterion(pred, y, k)
                    else:
                        continue
                opt.zero_grad()
                loss.backward()
                opt.step()
            except ValueError:
                pass
            finally:
                pass
        """,
    "checkpointing": """
        from torch.utils.checkpoint import checkpoint
        model = Net(); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for x, y, k in loader:
            pred = checkpoint(model, x, use_reentrant=False)
            loss = criterion(pred, y, k)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
}

LATER = {"accumulation": 1, "two optimisers in turn": 7}
WITHOUT_LOADER = {"indices instead of a loader"}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_division_is_named(shape: str, tmp_path: Path) -> None:
    run = watch(MODEL + DATA + textwrap.dedent(SHAPES[shape]), tmp_path)
    finding = run.finding
    assert run.stopped == 3
    assert finding.code == "numerics.nonfinite-forward", finding
    assert (finding.where.op, finding.where.line) == ("div", run.line_of("# HERE")), finding
    assert finding.where.step == LATER.get(shape, 3)
    assert finding.where.batch == (None if shape in WITHOUT_LOADER else 3)
    assert finding.where.sample == 5
    assert len(run.verdict.findings) == 1
