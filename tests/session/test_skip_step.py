"""The policy ``skip-step``: afterwards weights, buffers, optimiser and scaler are as if the bad batch had not been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.session.watching import same_state, watch
from unstuck.session import SessionOptions

SKIP = SessionOptions(on_nonfinite="skip-step")

PROGRAM = """
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
opt = {optimizer}
generator = torch.Generator().manual_seed(5)
batches = [torch.randn(8, 4, generator=generator) for _ in range(12)]
for index, x in enumerate(batches):
    if index in {left_out}:
        continue
    bad = index in {bad}
    y = model(x)
    {loss}
    if index % {accumulate} == 0:
        opt.zero_grad()
    loss.backward()
    if index % {accumulate} == {accumulate} - 1:
        opt.step()
"""

LOSSES = {
    "loss": "loss = (y * (float('nan') if bad else 1.0)).pow(2).mean()",
    "gradient": "loss = torch.sqrt((y * (0.0 if bad else 1.0)).pow(2) + (0.0 if bad else 1e-3)).mean()",
}
OPTIMIZERS = {
    "sgd": "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)",
    "adamw": "torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)",
    "adam, one by one": "torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)",
    "fused": "torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)",
}


def expected(**values: Any) -> dict[str, Any]:
    """The same program without the bad batches."""
    space: dict[str, Any] = {}
    text = PROGRAM.format(**{**values, "left_out": values["bad"], "bad": ()})
    exec("import torch\nfrom torch import nn\ntorch.manual_seed(0)\n" + text, space)
    return space


def compare(space: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted["model"].state_dict().items():
        assert same_state(value, space["model"].state_dict()[name]), name
    states = zip(wanted["opt"].state_dict()["state"].items(), space["opt"].state_dict()["state"].items(), strict=True)
    for (_, left), (_, right) in states:
        for key, value in left.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(right[key])), key


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", LOSSES)
def test_as_if_the_batches_had_not_been(kind: str, optimizer: str, tmp_path: Path) -> None:
    values = {"optimizer": OPTIMIZERS[optimizer], "loss": LOSSES[kind], "bad": (0, 4, 7), "accumulate": 1}
    run = watch(PROGRAM.format(**values, left_out=()), tmp_path, SKIP)
    assert run.stopped is None
    compare(run.namespace, expected(**values))
    code = "numerics.nonfinite-forward" if kind == "loss" else "numerics.nonfinite-backward"
    numerics = [item for item in run.verdict.findings if item.code.startswith("numerics")]
    assert [item.code for item in numerics] == [code]
    assert numerics[0].where.step == 0
    assert "3 dropped steps" in run.verdict.watched
    assert "9 steps" in run.verdict.watched


def test_under_accumulation_the_whole_window_is_dropped(tmp_path: Path) -> None:
    values = {"optimizer": OPTIMIZERS["adamw"], "loss": LOSSES["loss"], "bad": (4,), "accumulate": 3}
    run = watch(PROGRAM.format(**values, left_out=()), tmp_path, SKIP)
    compare(run.namespace, expected(**{**values, "bad": (3, 4, 5)}))


def test_a_fused_optimizer_decides_by_itself(tmp_path: Path) -> None:
    values = {"optimizer": OPTIMIZERS["fused"], "loss": LOSSES["gradient"], "bad": (0, 4, 7), "accumulate": 1}
    options = SessionOptions(on_nonfinite="skip-step", decide_on_device=True)
    run = watch(PROGRAM.format(**values, left_out=()), tmp_path, options)
    compare(run.namespace, expected(**values))
    assert not hasattr(run.namespace["opt"], "found_inf")


def test_the_dropped_batches_are_told_with_the_datasets_indices(tmp_path: Path) -> None:
    run = watch(
        """
        from torch.utils.data import DataLoader, TensorDataset
        x = torch.randn(96, 4); x[37, 2] = x[71, 0] = float("nan")
        model = nn.Linear(4, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for (batch,) in DataLoader(TensorDataset(x), batch_size=8, shuffle=True):
            loss = model(batch).pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
        SKIP,
    )
    assert "2 dropped steps" in run.verdict.watched
    (told,) = [phrase for phrase in run.verdict.watched if phrase.startswith("dropped: batch ")]
    assert "(dataset index 37)" in told and "(dataset index 71)" in told
    assert bool(run.namespace["model"].weight.isfinite().all())


def test_gradients_are_there_again_after_a_dropped_step(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        seen = []
        for step in range(4):
            loss = model(torch.randn(8, 3)).mean() * (float("nan") if step == 2 else 1.0)
            opt.zero_grad(); loss.backward(); opt.step()
            seen.append(bool(model.weight.grad.isfinite().all()))
        """,
        tmp_path,
        SKIP,
    )
    assert run.namespace["seen"] == [True, True, False, True]


def test_too_many_in_a_row_end_the_run(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(40):
            loss = model(torch.randn(8, 3)).mean() * (float("nan") if step >= 5 else 1.0)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
        SKIP,
    )
    assert run.stopped == 3
    assert run.namespace["step"] == 15
    assert bool(run.namespace["model"].weight.isfinite().all())
    assert any("10 steps in a row" in phrase for phrase in run.verdict.unchecked)


SCALED = """
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
generator = torch.Generator().manual_seed(5)
batches = [torch.randn(8, 4, generator=generator) for _ in range(12)]
for index, x in enumerate(batches):
    if index in {left_out}:
        continue
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(x).float().pow(2).mean() * (float("nan") if index in {bad} else 1.0)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
"""


def test_a_scaler_is_left_as_it_was(tmp_path: Path) -> None:
    run = watch(SCALED.format(bad=(3, 8), left_out=()), tmp_path, SKIP)
    space: dict[str, Any] = {}
    exec("import torch\nfrom torch import nn\ntorch.manual_seed(0)\n" + SCALED.format(bad=(), left_out=(3, 8)), space)
    compare(run.namespace, space)
    assert run.namespace["scaler"].state_dict() == space["scaler"].state_dict()


def test_weights_that_an_update_has_spoilt_end_the_run(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(9):
            opt.param_groups[0]["lr"] = float("inf") if step == 4 else 0.01
            loss = model(torch.randn(8, 3)).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
        SKIP,
    )
    assert run.stopped == 3
    assert run.finding.code == "numerics.nonfinite-parameter"
