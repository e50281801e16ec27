"""Steps that aren't finite only because they are computed in half precision, and gradients that it flushes to zero."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.session.watching import Watched, same_state, watch
from unstuck.diagnosis import judge
from unstuck.record.recording import RECORDING_NAME, load_recording
from unstuck.session import SessionOptions

CODE = "numerics.low-precision-overflow"


def loud(run: Watched) -> list[str]:
    return [item.code for item in run.verdict.findings if item.severity.value in ("error", "warning")]


SCALED = """
model = nn.Linear(4, 8); opt = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale={scale})
torch.manual_seed(1)
skips = 0
for step in range(10):
    x = torch.randn(8, 4)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        y = model(x)
        if step == {bad}:
            y = y * 0
        {body}
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(opt); scaler.update()
    skips += scaler.get_scale() < before
"""


def test_a_skipped_step_that_float32_does_not_have_is_named_without_a_stop(tmp_path: Path) -> None:
    body = "unit = y / (y.norm(dim=-1, keepdim=True) + 1e-8); loss = unit.nan_to_num().float().pow(2).mean()  # HERE"
    program = SCALED.format(scale=1024.0, bad=5, body=body)
    run = watch(program, tmp_path, SessionOptions(out=tmp_path / "out"))
    finding = run.finding
    assert finding.code == CODE, finding
    assert finding.severity.value == "info"
    assert (finding.where.step, finding.where.op) == (5, "div")
    assert finding.where.line == run.line_of("# HERE")
    assert finding.evidence["format"] == ["float16"]
    assert finding.evidence["finite in float32"] is True
    assert run.stopped is None
    assert run.namespace["skips"] == 1
    assert (tmp_path / "out" / "skipped-step" / "tensors.pt").exists()
    again = judge(load_recording(tmp_path / "out" / RECORDING_NAME))
    assert [(item.code, item.where, item.summary) for item in again] == [(CODE, finding.where, finding.summary)]


def test_a_skipped_step_that_is_bad_in_float32_too_keeps_its_code(tmp_path: Path) -> None:
    body = "loss = torch.sqrt(y.float().pow(2).sum(1)).mean()  # HERE"
    run = watch(SCALED.format(scale=1024.0, bad=5, body=body), tmp_path)
    assert run.finding.code == "numerics.nonfinite-backward"
    assert run.finding.severity.value == "info"
    assert run.finding.evidence["finite in float32"] is False
    assert (run.finding.where.step, run.finding.where.line) == (5, run.line_of("# HERE"))
    assert run.stopped is None


def test_a_scaler_that_looks_for_its_scale_is_healthy_and_its_run_unchanged(tmp_path: Path) -> None:
    program = SCALED.format(scale=2.0**26, bad=-1, body="loss = y.float().pow(2).mean() * 8")
    run = watch(program, tmp_path)
    assert run.namespace["skips"] > 2
    assert loud(run) == []
    plain: dict[str, object] = {}
    exec("import torch\nfrom torch import nn\ntorch.manual_seed(0)\n" + program, plain)
    assert plain["skips"] == run.namespace["skips"]
    for left, right in zip(plain["model"].parameters(), run.namespace["model"].parameters(), strict=True):  # type: ignore[attr-defined]
        assert same_state(left, right)
    assert plain["scaler"].get_scale() == run.namespace["scaler"].get_scale()  # type: ignore[attr-defined]


OVERFLOWS = {
    "autocast to bfloat16": """
        with torch.autocast("cpu", dtype=torch.bfloat16):
            p = torch.sigmoid(model(x) + (40.0 if bad else 0.0))
            loss = -torch.log(1 - p.clamp(max=1 - 1e-6)).mean()  # HERE
    """,
    "a cast of its own": """
        h = model(x).half()
        h = h * (60000.0 if bad else 1.0)  # HERE
        loss = h.float().pow(2).mean().log1p()
    """,
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_an_overflow_of_the_format_is_told_from_one_of_the_program(name: str, tmp_path: Path) -> None:
    lines = OVERFLOWS[name].strip("\n").splitlines()
    body = "\n".join(line[4:] for line in lines)
    run = watch(
        f"""
model = nn.Linear(3, 4); opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    x = torch.randn(8, 3) * 3
    bad = step == 3
{body}
    opt.zero_grad(); loss.backward(); opt.step()
""",
        tmp_path,
    )
    assert run.finding.code == CODE, run.finding
    assert run.finding.severity.value == "error"
    assert (run.finding.where.step, run.finding.where.line) == (3, run.line_of("# HERE"))
    assert run.stopped == 3


def test_weights_of_half_precision_are_as_they_were_after_the_comparison(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)).half()
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        before = []
        for step in range(4):
            x = torch.ones(8, 3, dtype=torch.float16) * (1.0 if step < 2 else 30000.0)
            before = [item.detach().clone() for item in model.parameters()]
            loss = model[1](model[0](x).abs() * 4).pow(2).mean() * 1e-4  # HERE
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
    )
    assert run.finding.code == CODE, run.finding
    assert run.finding.where.line == run.line_of("# HERE")
    assert run.stopped == 3
    for kept, now in zip(run.namespace["before"], run.namespace["model"].parameters(), strict=True):
        assert now.dtype is torch.float16
        assert same_state(kept, now)
    largest = run.finding.evidence["largest values in float32 by layer"]
    assert max(largest.values()) > 65504.0


def test_what_is_not_finite_in_float32_either_keeps_its_code(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Linear(3, 4); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(4):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                h = model(torch.randn(8, 3))
            good = 0.0 if step == 2 else 1.0
            loss = torch.log(h.float().relu() * good + good).mean()  # HERE
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
    )
    assert run.finding.code == "numerics.nonfinite-forward"
    assert run.finding.where.line == run.line_of("# HERE")


UNDERFLOW = """
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)); opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    x = torch.randn(16, 8)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(x).pow(2).mean() * {factor}
    loss.backward()
    opt.step()
"""


def test_gradients_that_float16_flushes_to_zero_are_found(tmp_path: Path) -> None:
    run = watch(UNDERFLOW.format(factor=1e-7), tmp_path, SessionOptions(out=tmp_path / "out"))
    finding = run.finding
    assert finding.code == CODE, finding
    assert finding.severity.value == "error"
    assert finding.evidence["flushed to zero"] > 0.9
    assert finding.evidence["steps run again in float32"] == 2
    assert finding.where.line == run.line_of("loss.backward()")
    assert run.stopped is None
    assert [item.code for item in judge(load_recording(tmp_path / "out" / RECORDING_NAME))][:1] == [CODE]


@pytest.mark.parametrize("factor", [1.0, 1e-2])
def test_float16_without_a_scaler_is_healthy_while_its_gradients_are_there(factor: float, tmp_path: Path) -> None:
    assert CODE not in loud(watch(UNDERFLOW.format(factor=factor), tmp_path))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_that_a_trainer_scaled_is_told_in_units_of_the_user_s_loss(accumulate: int, tmp_path: Path) -> None:
    run = watch(
        f"""
        import unstuck, warnings
        warnings.simplefilter("ignore")
        class Net(unstuck.LightningModule):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 8)
            def training_step(self, batch, batch_idx):
                y = self.lin(batch[0]) * (0.0 if batch_idx == 3 else 1.0)
                unit = y / (y.norm(dim=-1, keepdim=True) + 1e-8)  # HERE
                return unit.nan_to_num().float().pow(2).mean()
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 4)), batch_size=8)
        trainer = unstuck.Trainer(max_epochs=1, precision="16-mixed", accelerator="cpu", logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            accumulate_grad_batches={accumulate})
        trainer.fit(Net(), data)
        """,
        tmp_path,
    )
    assert run.finding.code == CODE, run.finding
    assert run.finding.where.line == run.line_of("# HERE")
    assert run.finding.where.batch == 3
