"""Recorded norms, updates and weights against slow twins that look at every gradient by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from unstuck.record.gradients import APPLIED, FIRST_PARAMETER, TOTAL
from unstuck.record.recording import Recording, load_recording
from unstuck.session import Ending, Session, SessionOptions


@contextmanager
def session(every: bool = True, out: Path | None = None) -> Iterator[Session]:
    watching = Session(SessionOptions(every_gradient=every, on_nonfinite="continue", out=out))
    watching.start()
    try:
        yield watching
    finally:
        verdict = watching.finish(Ending("completed"))
    assert not [phrase for phrase in verdict.unchecked if "switched off" in phrase]


def by_hand(parameters: list[nn.Parameter]) -> list[float]:
    """The slow twin: one norm after the other, in double precision; NaN without a gradient."""
    found = []
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            found.append(math.nan)
        else:
            found.append(float(gradient.to_dense().double().pow(2).sum().sqrt()))
    return found


def recorded(recording: Recording, optimizer: int = 0) -> list[list[float]]:
    return [list(bucket.last) for bucket in recording.optimizers[optimizer].norms]


def same(told: list[float], seen: list[float], tolerance: float = 1e-5) -> None:
    assert len(told) == len(seen)
    for a, b in zip(told, seen, strict=True):
        assert (math.isnan(a) and math.isnan(b)) or a == pytest.approx(b, rel=tolerance, abs=1e-30)


def train(model: nn.Module, loss: Callable[[int], torch.Tensor], steps: int, between: Callable[[], None]) -> list:
    """A loop that keeps what the slow twin saw between backward and ``between``, and after it."""
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    seen = []
    for step in range(steps):
        optimizer.zero_grad()
        loss(step).backward()
        before = by_hand(parameters)
        between()
        after = by_hand(parameters)
        seen.append((before, math.hypot(*(norm for norm in after if not math.isnan(norm)))))
        optimizer.step()
    return seen


shapes = st.lists(st.lists(st.integers(1, 5), max_size=3).map(tuple), min_size=1, max_size=5)


class Anything(nn.Module):
    """Parameters of any shapes and formats; the loss gives each the gradient that the seed says, or none."""

    def __init__(self, shapes: list[tuple[int, ...]], dtypes: list[torch.dtype]) -> None:
        super().__init__()
        self.items = nn.ParameterList(
            nn.Parameter(torch.randn(shape).to(dtype)) for shape, dtype in zip(shapes, dtypes, strict=False)
        )

    def loss(self, seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        total = torch.zeros(())
        for index, item in enumerate(self.items):
            kind = int(torch.randint(0, 6, (), generator=generator))
            if kind == 0 and index:
                continue
            weight = torch.randn(item.shape, generator=generator) * (0.0 if kind == 1 else 10.0**kind)
            total = total + (item.float() * weight).sum()
        return total


@settings(max_examples=25, deadline=None)
@given(shapes, st.lists(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]), min_size=5, max_size=5))
def test_norms_of_any_shapes_and_formats(shapes: list[tuple[int, ...]], dtypes: list[torch.dtype]) -> None:
    model = Anything(shapes, dtypes)
    with session() as watching:
        seen = train(model, model.loss, 5, lambda: None)
    for told, (norms, applied) in zip(recorded(watching.recording), seen, strict=True):
        same(told[FIRST_PARAMETER:], norms, 1e-4)
        same(told[:FIRST_PARAMETER], [math.hypot(*(norm for norm in norms if norm == norm)), applied], 1e-4)


def total(model: nn.Module) -> torch.Tensor:
    return nn.utils.get_total_norm([item.grad for item in model.parameters() if item.grad is not None])


@pytest.mark.parametrize("how", ["norm", "value", "groups", "infinity norm", "norm given", "none"])
def test_norms_are_those_before_clipping(how: str) -> None:
    if how == "norm given" and not hasattr(nn.utils, "get_total_norm"):
        pytest.skip("from torch 2.6 on")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    clip = {
        "norm": lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.01),
        "value": lambda: nn.utils.clip_grad_value_(model.parameters(), 0.001),
        "groups": lambda: [
            nn.utils.clip_grad_norm_(model[0].parameters(), 0.01),
            nn.utils.clip_grad_norm_(model[2].parameters(), 1e-3),
        ],
        "infinity norm": lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.002, norm_type=math.inf),
        "norm given": lambda: nn.utils.clip_grads_with_norm_(model.parameters(), 0.01, total(model)),
        "none": lambda: None,
    }[how]
    with session() as watching:
        seen = train(model, lambda step: model(torch.randn(8, 6)).pow(2).mean(), 8, clip)
    rows = recorded(watching.recording)
    for told, (norms, applied) in zip(rows, seen, strict=True):
        same(told[FIRST_PARAMETER:], norms, 1e-3)
        assert told[APPLIED] == pytest.approx(applied, rel=1e-3)
        assert told[TOTAL] == pytest.approx(math.hypot(*norms), rel=1e-3)
    assert (rows[0][APPLIED] < 0.9 * rows[0][TOTAL]) == (how != "none")


def test_sparse_shared_and_frozen_parameters() -> None:
    torch.manual_seed(0)

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(9, 4, sparse=True)
            self.inner = nn.Linear(4, 4)
            self.twice = self.inner
            self.frozen = nn.Linear(4, 1).requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.frozen(self.twice(self.inner(self.table(x))))

    model = Tied()
    with session() as watching:
        seen = train(model, lambda step: model(torch.tensor([1, 2, 2, step])).pow(2).mean(), 4, lambda: None)
    (record,) = watching.recording.optimizers
    assert record.names == ["table.weight", "inner.weight", "inner.bias", "frozen.weight", "frozen.bias"]
    for told, (norms, _) in zip(recorded(watching.recording), seen, strict=True):
        same(told[FIRST_PARAMETER:], norms, 1e-4)


def test_gradients_of_a_closure_are_its_last_ones() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.tensor([3.0, -2.0]))
    optimizer = torch.optim.LBFGS([weight], max_iter=3)
    last = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight - 1.0).pow(4).sum()
        loss.backward()
        last.append(by_hand([weight])[0])
        return loss

    seen = []
    with session() as watching:
        for _ in range(3):
            optimizer.step(closure)
            seen.append(last[-1])
    assert [row[TOTAL] for row in recorded(watching.recording)] == pytest.approx(seen)
    assert [bucket.start for bucket in watching.recording.optimizers[0].norms] == [0, 1, 2]


def test_two_optimisers_have_their_own_tables() -> None:
    torch.manual_seed(0)
    a, b = nn.Linear(3, 1), nn.Linear(3, 1)
    with session() as watching:
        for_a, for_b = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.Adam(b.parameters(), lr=0.1)
        for _ in range(3):
            for model, optimizer in ((a, for_a), (b, for_b)):
                optimizer.zero_grad()
                model(torch.randn(4, 3)).pow(2).mean().backward()
                optimizer.step()
    assert [record.kind for record in watching.recording.optimizers] == ["SGD", "Adam"]
    assert [record.names for record in watching.recording.optimizers] == [
        ["a.weight", "a.bias"],
        ["b.weight", "b.bias"],
    ]
    steps = [[bucket.start for bucket in record.norms] for record in watching.recording.optimizers]
    assert steps == [[0, 2, 4], [1, 3, 5]]


def test_norms_under_a_loss_scaler_are_unscaled_and_skips_are_counted() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    true = []
    with session() as watching:
        for step in range(6):
            x = torch.randn(8, 4) * (math.inf if step == 3 else 1.0)
            loss = model(x.nan_to_num(posinf=1e38, neginf=-1e38)).pow(2).mean()
            if step != 3:
                true.append(math.hypot(*(float(g.norm()) for g in torch.autograd.grad(loss, model.parameters(), retain_graph=True))))  # fmt: skip # noqa: E501
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert [row[TOTAL] for row in recorded(watching.recording)] == pytest.approx(true, rel=1e-4)
    (record,) = watching.recording.scalers
    assert (record.attempts, record.skipped, record.longest, record.longest_step) == (6, 1, 1, 3)
    assert [value for _, value in record.scales.lasts(0)] == [1024.0] * 4 + [512.0] * 2


def test_updates_and_weights_are_those_of_the_whole_where_it_is_small() -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = [item.detach().clone() for item in model.parameters()]
    expected = []
    with session() as watching:
        for _ in range(4):
            before = [item.detach().clone() for item in model.parameters()]
            optimizer.zero_grad()
            model(torch.randn(4, 5)).pow(2).mean().backward()
            optimizer.step()
            expected.append(
                [
                    float((item.detach() - old).norm() / old.norm())
                    for item, old in zip(model.parameters(), before, strict=True)
                ]
            )
    (record,) = watching.recording.optimizers
    assert len(record.updates) == 4
    for bucket, ratios in zip(record.updates, expected, strict=True):
        assert list(bucket.last[1:]) == pytest.approx(ratios, rel=1e-4)
    moved = [
        float((item.detach() - old).norm() / old.norm()) for item, old in zip(model.parameters(), first, strict=True)
    ]
    assert record.moved == pytest.approx(moved, rel=1e-4)
    assert record.weights.buckets[0].last[0] == pytest.approx(math.hypot(*(float(item.norm()) for item in first)))


def test_a_parameter_whose_storage_is_replaced_is_followed() -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with session() as watching:
        for step in range(3):
            if step == 1:
                model.weight.data = model.weight.data * 2.0
            optimizer.zero_grad()
            model(torch.randn(4, 5)).pow(2).mean().backward()
            optimizer.step()
    assert watching.recording.optimizers[0].moved[0] == pytest.approx(1.0)


def test_added_parameters_begin_a_new_table() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"body": nn.Linear(3, 3), "head": nn.Linear(3, 1)})
    optimizer = torch.optim.SGD(model["head"].parameters(), lr=0.1)
    with session() as watching:
        for step in range(4):
            if step == 2:
                optimizer.add_param_group({"params": list(model["body"].parameters()), "lr": 0.01})
            optimizer.zero_grad()
            model["head"](model["body"](torch.randn(4, 3))).pow(2).mean().backward()
            optimizer.step()
    names = [record.names for record in watching.recording.optimizers]
    assert names == [["head.weight", "head.bias"], ["head.weight", "head.bias", "body.weight", "body.bias"]]
    assert [[bucket.start for bucket in record.norms] for record in watching.recording.optimizers] == [[0, 1], [2, 3]]


def test_a_long_run_is_thinned_but_complete(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with session(every=False, out=tmp_path) as watching:
        for _ in range(400):
            optimizer.zero_grad()
            model(torch.randn(4, 2)).pow(2).mean().backward()
            optimizer.step()
    (record,) = watching.recording.optimizers
    assert record.steps == 400
    steps = [bucket.start for bucket in record.norms]
    assert steps[:16] == list(range(16))
    assert 16 < len(steps) < 300, "the budget spaces the sweeps of so small a step"
    again = load_recording(tmp_path / "recording.jsonl")
    assert again.optimizers == watching.recording.optimizers or recorded(again) == recorded(watching.recording)
    assert again.optimizers[0].moved == record.moved and again.optimizers[0].step_at == record.step_at


def test_a_killed_run_leaves_its_norms(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    with session(out=tmp_path) as watching:
        train(model, lambda step: model(torch.randn(4, 2)).pow(2).mean(), 5, lambda: None)
        watching.so_far()  # writes what is waiting
        text = (tmp_path / "recording.jsonl").read_text()
    (tmp_path / "killed.jsonl").write_text(text + '{"event":"norms","optim')
    killed = load_recording(tmp_path / "killed.jsonl")
    assert recorded(killed) == recorded(watching.recording)
    assert killed.optimizers[0].names == ["weight", "bias"]


@pytest.mark.parametrize("how", ["norm", "value", "scaler"])
def test_a_watched_run_has_the_same_bits(how: str) -> None:
    def run() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(0.3), nn.Linear(12, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", enabled=how == "scaler", init_scale=2.0**100)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16, enabled=how == "scaler"):
                loss = model(torch.randn(8, 6)).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            if how == "value":
                nn.utils.clip_grad_value_(model.parameters(), 0.01)
            else:
                nn.utils.clip_grad_norm_(iter(model.parameters()), 0.1)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        return [*losses, *(item.detach() for item in model.parameters()), torch.get_rng_state()]

    plain = run()
    with session() as watching:
        watched = run()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert watching.recording.optimizers or how == "scaler"


def test_a_loss_that_jumps_is_measured_although_nothing_is_due() -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(16, 8), torch.randn(16, 1)
    rested = []
    with session(every=False) as watching:
        for step in range(600):
            scale = 100.0 if step in (501, 502, 540) else 1.0
            loss = scale * nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rested.append(watching._gradients.rest.until > 0)
    assert any(rested[100:500])
    measured = {bucket.end for bucket in watching.recording.optimizers[0].norms}
    assert {501, 502, 540} <= measured and len(measured) < 400
    assert watching.recording.optimizers[0].steps == 600


def test_an_optimizer_that_comes_later_is_followed_from_its_first_step() -> None:
    model, second = nn.Linear(8, 1), nn.Linear(8, 1)
    one = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(16, 8)
    with session(every=False) as watching:
        other: torch.optim.Optimizer | None = None
        for step in range(400):
            if step == 333:
                other = torch.optim.SGD(second.parameters(), lr=1e-3)
            for trained, optimizer in ((model, one), (second, other)):
                if optimizer is not None:
                    optimizer.zero_grad()
                    trained(x).square().mean().backward()
                    optimizer.step()
    first, later = watching.recording.optimizers
    assert (first.steps, later.steps) == (400, 67)
    assert next(iter(later.norms)).start == 334
