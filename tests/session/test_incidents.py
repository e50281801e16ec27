"""What is an incident and what isn't, and which code, place and op it gets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.session.watching import watch
from unstuck.findings import Severity
from unstuck.session import SessionOptions

LOOP = """
model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(1)
for step in range(6):
    x = torch.randn(8, 3); x[:, 0] = 1.0
    bad = step == 2
"""

BACKWARD = {
    "sqrt at zero": ("""
        pred = model(x)
        size = torch.sqrt((pred * (0.0 if bad else 1.0)).pow(2))  # HERE
        loss = size.mean()
    """, {"sqrt"}, None),
    "norm at zero": ("""
        pred = model(x) * (0.0 if bad else 1.0)
        loss = pred.pow(2).sum(1).sqrt().mean()  # HERE
    """, {"sqrt"}, None),
    "where over an unsafe branch": ("""
        pred = model(x).squeeze(1)
        value = torch.where(torch.arange(8) == 4, pred * (0.0 if bad else 1.0), pred.abs() + 1)
        loss = torch.where(value > 0, torch.log(value.clamp(min=0.0)), value).mean()  # HERE
    """, {"log"}, 4),
    "power below one": ("""
        pred = model(x).squeeze(1).abs()
        base = pred * (torch.arange(8) != 6) if bad else pred
        loss = (base ** 0.5).mean()  # HERE
    """, {"pow"}, 6),
    "infinite gradient that stays infinite": ("""
        scale = nn.functional.softplus(model(x)).squeeze(1)
        small = scale * (1e-38 if bad else 1.0)
        tiny = small * 0.0 + (0.0 if bad else 1.0)
        loss = (small + torch.sqrt(tiny)).sum()  # HERE
    """, {"sqrt"}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", BACKWARD)
def test_the_forward_line_of_a_derivative_is_named(name: str, tmp_path: Path) -> None:
    body, ops, sample = BACKWARD[name]
    run = watch(LOOP + _indented(body) + "    opt.zero_grad(); loss.backward(); opt.step()\n", tmp_path)
    finding = run.finding
    assert finding.code == "numerics.nonfinite-backward", finding
    assert finding.where.op in ops, finding
    assert finding.where.line == run.line_of("# HERE")
    assert finding.where.step == 2
    if sample is not None:
        assert finding.where.sample == sample


def _indented(body: str) -> str:
    lines = body.strip("\n").splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "".join(f"    {line[margin:]}\n" for line in lines)


def test_the_line_inside_a_custom_function_is_named(tmp_path: Path) -> None:
    run = watch(
        """
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, bad):
                ctx.bad = bad
                return x * 2
            @staticmethod
            def backward(ctx, grad):
                scale = torch.tensor(0.0 if ctx.bad else 1.0)
                return grad / scale, None  # HERE
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(4):
            loss = Double.apply(model(torch.ones(8, 3)), step == 2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
    )
    assert run.finding.code == "numerics.nonfinite-backward"
    assert (run.finding.where.op, run.finding.where.line) == ("div", run.line_of("# HERE"))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_modules_are_seen_through(reentrant: bool, tmp_path: Path) -> None:
    run = watch(
        f"""
        from torch.utils.checkpoint import checkpoint
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 3)
                self.kill = 1.0
            def forward(self, x):
                h = self.lin(x) * self.kill
                return h.pow(2).sum(1).sqrt()  # HERE
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(3, 3)
                self.block = Block()
            def forward(self, x):
                return checkpoint(self.block, self.first(x), use_reentrant={reentrant})
        net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(4):
            if step == 2:
                net.block.kill = 0.0
            loss = net(torch.randn(8, 3)).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
    )
    where = run.finding.where
    assert run.finding.code == "numerics.nonfinite-backward"
    assert (where.op, where.line, where.step, where.module) == ("sqrt", run.line_of("# HERE"), 2, "block")


def test_a_nan_loss_with_finite_gradients_is_found(tmp_path: Path) -> None:
    run = watch(
        """
        w = torch.ones(3, requires_grad=True); v = torch.ones(3, requires_grad=True)
        opt = torch.optim.SGD([w, v], lr=0.1)
        for step in range(4):
            loss = (w ** 2).sum() + 0.0 * torch.log(v.detach() - (2.0 if step == 2 else 0.0)).sum()  # HERE
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
    )
    assert run.finding.code == "numerics.nonfinite-forward"
    assert (run.finding.where.op, run.finding.where.line, run.finding.where.step) == ("log", run.line_of("# HERE"), 2)


@pytest.mark.parametrize(
    ("optimizer", "op"),
    [
        ("torch.optim.Adam(model.parameters(), lr=1e-2)", {"addcdiv", "div"}),
        ("torch.optim.SGD(model.parameters(), lr=6e4, momentum=0.9)", {"add", "mul"}),
    ],
)
def test_an_update_that_poisons_a_weight_is_explained(optimizer: str, op: set[str], tmp_path: Path) -> None:
    run = watch(
        f"""
        model = nn.Linear(3, 2).half()
        opt = {optimizer}
        x = torch.ones(4, 3).half() * 8; x[:, 1] = 0
        for step in range(5):
            loss = model(x).float().mean()
            opt.zero_grad(); loss.backward(); opt.step()  # HERE
        """,
        tmp_path,
    )
    where = run.finding.where
    assert run.finding.code == "numerics.nonfinite-parameter"
    assert where.op in op and where.line == run.line_of("# HERE")
    assert where.parameter in ("weight", "bias") and where.step is not None


def test_a_batch_that_holds_nan_is_told_from_an_operation(tmp_path: Path) -> None:
    run = watch(
        """
        from torch.utils.data import DataLoader, TensorDataset
        X = torch.randn(40, 3); X[27, 1] = float("nan")
        loader = DataLoader(TensorDataset(X, torch.randn(40, 1)), batch_size=8)
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for x, y in loader:  # HERE
            loss = (model(x) - y).pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
    )
    where = run.finding.where
    assert run.finding.code == "data.nonfinite-input"
    assert (where.step, where.batch, where.sample, where.line) == (3, 3, 3, run.line_of("# HERE"))


@pytest.mark.parametrize("loader", [True, False])
def test_an_operation_before_the_model_is_named(loader: bool, tmp_path: Path) -> None:
    source = "loader" if loader else "[(x, y) for x, y in loader]"
    run = watch(
        f"""
        from torch.utils.data import DataLoader, TensorDataset
        X = torch.rand(40, 3) + 0.1; X[27, 1] = -1.0
        loader = DataLoader(TensorDataset(X, torch.randn(40, 1)), batch_size=8)
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for x, y in {source}:
            features = torch.log(x)  # HERE
            loss = (model(features) - y).pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
    )
    where = run.finding.where
    assert run.finding.code == "numerics.nonfinite-forward", run.finding
    assert (where.op, where.step, where.sample, where.line) == ("log", 3, 3, run.line_of("# HERE"))


HEALTHY = {
    "a scaler that skips": """
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for step in range(6):
            loss = model(torch.randn(8, 3)).pow(2).mean()
            if step == 2:
                loss = loss * float("inf")
            opt.zero_grad(); scaler.scale(loss).backward(); scaler.step(opt); scaler.update()
        """,
    "a scale that only the scaled loss can't hold": """
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=1000)
        for step in range(4):
            loss = 8.0 + model(torch.randn(8, 3)).mean() * 1e-3
            opt.zero_grad(); scaler.scale(loss).backward(); scaler.step(opt); scaler.update()
        """,
    "an isfinite check of its own": """
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(6):
            loss = model(torch.randn(8, 3)).pow(2).mean() * (float("nan") if step == 2 else 1.0)
            opt.zero_grad(); loss.backward()
            if torch.isfinite(loss):
                opt.step()
        """,
    "an isfinite check before backward": """
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(6):
            loss = model(torch.randn(8, 3)).pow(2).mean() * (float("nan") if step == 2 else 1.0)
            if not torch.isfinite(loss):
                continue
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "gradients cleaned": """
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(6):
            loss = model(torch.randn(8, 3)).pow(2).mean() * (float("nan") if step == 2 else 1.0)
            opt.zero_grad(); loss.backward()
            for p in model.parameters():
                torch.nan_to_num_(p.grad, 0.0, 0.0, 0.0)
            opt.step()
        """,
    "a step dropped by the gradient norm": """
        model = nn.Linear(3, 1); opt = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(6):
            loss = model(torch.randn(8, 3)).pow(2).mean() * (float("inf") if step == 2 else 1.0)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if torch.isfinite(norm):
                opt.step()
            opt.zero_grad(set_to_none=False)
        """,
    "masks, logsumexp, nanmean, where": """
        model = nn.Linear(6, 6); opt = torch.optim.Adam(model.parameters(), lr=0.01)
        mask = torch.full((6, 6), float("-inf")).triu(1)
        best = torch.full((1,), float("inf"))
        for step in range(6):
            x = torch.randn(6, 6); y = torch.randn(6, 6); y[2, 3] = float("nan")
            att = (model(x) + mask).softmax(-1)
            lse = torch.logsumexp(torch.cat([model(x), torch.full((6, 1), float("-inf"))], 1), 1)
            known = torch.where(torch.isnan(y), 0.0, model(x) - y)
            loss = att.pow(2).mean() + lse.mean() + known.pow(2).mean() + torch.nanmean(y) * 0
            best = torch.minimum(best, loss.detach())
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "a frozen parameter of minus infinity": """
        model = nn.Linear(3, 3); model.mask = nn.Parameter(torch.tensor([0.0, 0.0, float("-inf")]), requires_grad=False)
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(6):
            loss = (model(torch.randn(8, 3)) + model.mask).softmax(-1).pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "evaluation that gives NaN": """
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(6):
            with torch.no_grad():
                value = model(torch.randn(0, 3)).mean()
            loss = model(torch.randn(8, 3)).pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_the_program_drops_or_intends_is_no_incident(name: str, tmp_path: Path) -> None:
    run = watch(HEALTHY[name], tmp_path)
    assert run.stopped is None
    # a step that a scaler drops is worth knowing and no more
    assert [item for item in run.verdict.findings if item.severity is not Severity.INFO] == []
    assert run.verdict.watched


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize(
    ("keeps", "trains"),
    [("unstuck", "unstuck"), ("lightning.pytorch", "lightning.pytorch"), ("lightning.pytorch", "unstuck")],
)
def test_a_step_that_reports_to_its_trainer_is_run_again_without_a_report(
    keeps: str, trains: str, manual: bool, tmp_path: Path
) -> None:
    program = f"""
        import {keeps} as kept
        import {trains} as trained
        from torch.utils.data import DataLoader, TensorDataset
        class Model(kept.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 3)
                self.automatic_optimization = not {manual}
                self.calls = 0
            def training_step(self, batch, index):
                self.calls += 1
                p = self.net(batch[0]).softmax(-1) * (0.0 if index == 3 else 1.0)
                loss = torch.log(p)[:, 0].mean().neg()  # LOG
                self.log("loss", loss)
                self.log_dict({{"calls": float(self.calls)}}, on_step=True, on_epoch=True, reduce_fx="sum")
                self.print("call", self.calls)
                if not self.automatic_optimization:
                    self.optimizers().zero_grad()
                    self.manual_backward(loss)
                    self.optimizers().step()
                return loss
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=1e-3)
        trainer = trained.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=2))
        """
    run = watch(program, tmp_path, SessionOptions(on_nonfinite="continue"))
    incident = run.session.recording.incidents[0]
    origin = incident.origin
    assert origin is not None, incident.reasons
    assert (origin.op, origin.chain[-1].line, incident.step) == ("log", run.line_of("# LOG"), 3)
    metrics = run.namespace["trainer"].callback_metrics
    assert (float(metrics["calls_step"]), float(metrics["calls_epoch"])) == (6.0, 21.0)
    assert not bool(torch.isfinite(metrics["loss"]))
    assert [line for line in run.output.splitlines() if line.startswith("call")] == [f"call {n}" for n in range(1, 7)]


def test_one_cause_is_one_finding_however_long_the_run_goes_on(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(30):
            loss = torch.log(model(torch.randn(8, 3)).abs() * (0.0 if step == 4 else 1.0)).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
        SessionOptions(on_nonfinite="continue"),
    )
    assert [finding.where.step for finding in run.verdict.findings] == [4]


def test_the_incident_is_saved_and_loads_with_weights_only(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = watch(
        """
        model = nn.Linear(3, 1); opt = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(4):
            loss = torch.log(model(torch.randn(8, 3)) * (0.0 if step == 2 else 1.0)).abs().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
        SessionOptions(out=out),
    )
    (folder,) = run.verdict.incidents
    saved = torch.load(Path(folder) / "tensors.pt", weights_only=True)
    assert set(saved["models"]["model"]) == {"weight", "bias"}
    assert torch.equal(saved["models"]["model"]["weight"], run.namespace["model"].weight)
    assert torch.equal(saved["batches"]["arguments"][0][0], run.namespace.get("x", saved["batches"]["arguments"][0][0]))
    assert saved["optimizers"][0]["param_groups"][0]["lr"] == 0.01
    assert saved["random_state"]["torch_cpu"].dtype == torch.uint8


def test_the_run_stops_after_the_wanted_number_of_steps(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01); done = 0; closed = False
        try:
            for step in range(30):
                loss = model(torch.randn(8, 3)).pow(2).mean()
                opt.zero_grad(); loss.backward(); opt.step()
                done += 1
        finally:
            closed = True
        """,
        tmp_path,
        SessionOptions(steps=5),
    )
    assert (run.stopped, run.namespace["done"], run.namespace["closed"]) == (0, 4, True)
    assert run.verdict.stopped == "steps"
