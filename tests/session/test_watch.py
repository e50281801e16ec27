"""``unstuck.watch``: a loop written by hand is watched, other training isn't, and nothing is left behind."""

from __future__ import annotations

import gc
import json
import math
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_  # taken before any session, as a user's module has it

import unstuck
from unstuck.errors import MisconfigurationException
from unstuck.session import Session


def training(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor | None = None) -> float:
    x = torch.randn(8, 4) if x is None else x
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def test_a_block_is_watched_and_healthy_training_has_no_finding() -> None:
    model, optimizer = training()
    with unstuck.watch(model, optimizer) as watch:
        losses = [one_step(model, optimizer) for _ in range(12)]
        assert watch.findings == ()
    recorded = [value for _, value in watch.recording.losses]
    assert recorded == losses
    (record,) = watch.recording.optimizers
    assert record.names == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert record.steps == 12 and len(record.norms) == 12


def test_an_incident_is_found_while_the_loop_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, optimizer = training()
    watch = unstuck.watch(model, optimizer, out=tmp_path / "out")
    try:
        for step in range(4):
            x = torch.rand(8, 4)
            with watch.step(x):
                out = model(x) * (math.nan if step == 2 else 1.0)
                loss = out.mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        (finding,) = watch.findings
        watch.report()
    finally:
        watch.close()
    assert finding.code == "numerics.nonfinite-forward"
    assert finding.where.step == 2 and finding.where.batch == 2
    assert finding.where.file == __file__
    assert "numerics.nonfinite-forward" in capsys.readouterr().err
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [item["code"] for item in report["findings"]] == ["numerics.nonfinite-forward"]


def test_stop_ends_the_loop_as_run_does() -> None:
    model, optimizer = training()
    with pytest.raises(SystemExit) as stop, unstuck.watch(model, optimizer, on_nonfinite="stop") as watch:
        one_step(model, optimizer, torch.full((8, 4), math.nan))
    assert stop.value.code == 3
    assert [item.code for item in watch.findings] == ["data.nonfinite-input"]


def test_only_what_was_given_is_watched() -> None:
    (model, optimizer), (other, its_optimizer) = training(0), training(1)
    with unstuck.watch(model, optimizer) as watch:
        mine = []
        for _ in range(5):
            mine.append(one_step(model, optimizer))
            one_step(other, its_optimizer, torch.full((8, 4), math.nan))
            clip_grad_norm_(other.parameters(), 1.0)
    assert watch.findings == ()
    assert [value for _, value in watch.recording.losses] == mine
    assert len(watch.recording.optimizers) == 1 and watch.recording.clips == []


def test_the_optimisers_of_a_model_are_found() -> None:
    model, optimizer = training()
    with unstuck.watch(model) as watch:
        one_step(model, optimizer)
        later = torch.optim.Adam(model.parameters())
        one_step(model, later)
    assert [record.kind for record in watch.recording.optimizers] == ["SGD", "Adam"]


def test_a_clipping_function_taken_before_is_seen() -> None:
    model, optimizer = training()
    with unstuck.watch(model, optimizer) as watch:
        for _ in range(3):
            model(torch.randn(8, 4)).pow(2).mean().backward()
            norm = clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
            optimizer.zero_grad()
    (clip,) = watch.recording.clips
    assert (clip.calls, clip.fresh, clip.limit) == (3, 3, 1e-3)
    assert clip.norms.buckets[-1].last[0] == pytest.approx(norm.item())


@pytest.mark.skipif(not hasattr(nn.utils, "clip_grads_with_norm_"), reason="from torch 2.6 on")
def test_clipping_by_a_norm_that_is_known_is_seen_and_left_as_it_was() -> None:
    before = nn.utils.clip_grads_with_norm_
    model, optimizer = training()
    with unstuck.watch(model, optimizer) as watch:
        for _ in range(3):
            model(torch.randn(8, 4)).pow(2).mean().backward()
            norm = nn.utils.get_total_norm([item.grad for item in model.parameters()])
            nn.utils.clip_grads_with_norm_(model.parameters(), 1e-3, norm)
            optimizer.step()
            optimizer.zero_grad()
    (clip,) = watch.recording.clips
    assert (clip.calls, clip.fresh, clip.limit) == (3, 3, 1e-3)
    assert clip.norms.buckets[-1].last[0] == pytest.approx(norm.item())
    assert nn.utils.clip_grads_with_norm_ is before


def short_session() -> weakref.ref[Session]:
    model, optimizer = training()
    with unstuck.watch(model, optimizer) as watch:
        one_step(model, optimizer)
    one_step(model, optimizer)
    steps, losses = watch.recording.optimizers[0].steps, len(watch.recording.losses)
    assert (steps, losses) == (1, 1)
    return weakref.ref(watch._session)


def test_sessions_follow_each_other_and_leave_nothing() -> None:
    before = {name: getattr(torch.autograd, name) for name in ("backward", "grad")}
    sessions = [short_session() for _ in range(3)]
    assert {name: getattr(torch.autograd, name) for name in before} == before
    gc.collect()
    assert [item() for item in sessions] == [None] * 3


def test_a_second_watch_is_refused() -> None:
    model, optimizer = training()
    with unstuck.watch(model, optimizer):
        with pytest.raises(MisconfigurationException, match="watched already"):
            unstuck.watch(model, optimizer)
        one_step(model, optimizer)
    assert Session._active is None
    unstuck.watch(model, optimizer).close()


def test_an_error_in_the_block_ends_the_watch_and_passes() -> None:
    model, optimizer = training()
    with pytest.raises(KeyError, match="mine"), unstuck.watch(model, optimizer) as watch:
        raise KeyError("mine")
    assert watch._verdict is not None and watch._verdict.ending == "exception"
    assert Session._active is None


@pytest.mark.parametrize("arguments", [(3,), (None, "adam"), (None, [nn.Linear(1, 1)])])
def test_something_else_is_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(MisconfigurationException, match="must be a torch"):
        unstuck.watch(*arguments)  # type: ignore[arg-type]
    with pytest.raises(MisconfigurationException, match="on_nonfinite"):
        unstuck.watch(on_nonfinite="raise")  # type: ignore[arg-type]


def test_a_compiled_model_is_watched_without_a_module_hook() -> None:
    from torch.nn.modules import module as module_hooks

    model, optimizer = training()
    compiled = torch.compile(model, backend="eager")
    one_step(compiled, optimizer)
    with unstuck.watch(compiled, optimizer) as watch:
        assert not module_hooks._global_forward_pre_hooks
        one_step(compiled, optimizer)
    assert watch.recording.optimizers[0].names[0] == "0.weight"
