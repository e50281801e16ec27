"""An examination in this process: each status is honest, and whatever happens everything is afterwards as before."""

from __future__ import annotations

import logging
import random
import signal
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import unstuck
from tests.workflow.doctor import programs
from unstuck.instruments.losses import Losses
from unstuck.session.session import Session, active_session
from unstuck.session.watch import watch
from unstuck.workflow.doctor import Examination, checks, examine
from unstuck.workflow.doctor.outcome import Plan
from unstuck.workflow.doctor.target import TargetError

PLAN = Plan(steps=100, max_seconds=30.0)


def statuses(examination: Examination) -> dict[str, str]:
    return {item.name: item.status for item in examination.outcomes}


def of(examination: Examination, name: str) -> Any:
    return next(item for item in examination.outcomes if item.name == name)


def test_a_sound_program_is_ok_in_all_checks_and_parameters_have_their_names() -> None:
    for target, prefix in ((programs.plain, "model."), (lambda: (programs.Module(), programs.loader()), "net.")):
        examination = examine(target, PLAN)
        assert set(statuses(examination).values()) == {"ok"}
        assert examination.findings == ()
        norms = of(examination, "gradients").numbers["optimizer 0"]["norms"]
        assert list(norms) == [f"{prefix}{name}" for name in ("0.weight", "0.bias", "2.weight", "2.bias")]
        assert not any(item.why for item in examination.outcomes)


def test_only_the_operations_of_the_training_step_are_counted() -> None:
    def target(count: int) -> Any:
        model, _, loss, optimizer = programs.plain()
        return model, DataLoader(programs.data(4 * count), batch_size=count), loss, optimizer

    few, many = (of(examine(lambda count=count: target(count), PLAN), "numbers") for count in (8, 64))  # type: ignore[misc]
    assert few.numbers["operations"] == many.numbers["operations"] < 60


def test_a_training_that_diverges_has_failed() -> None:
    examination = examine(programs.climbing, PLAN)
    run = of(examination, "real run")
    assert run.status == "failed"
    assert run.numbers["last"] > 10 * run.numbers["first"]
    assert "has risen from" in run.why


def test_the_operation_of_a_late_overflow_is_found_by_training_to_its_step_again() -> None:
    examination = examine(programs.outlier, PLAN)
    finding = next(item for item in examination.findings if item.code == "numerics.nonfinite-forward")
    assert (finding.where.op, finding.where.step, finding.where.batch, finding.where.sample) == ("pow", 40, 40, 10)
    assert (finding.where.file, finding.where.line) == (programs.__file__, programs.line_of("overflows"))


def test_a_step_that_logs_is_located_too() -> None:
    examination = examine(lambda: (programs.Reporting(), programs.loader()), PLAN)
    (finding,) = examination.findings
    assert (finding.code, finding.where.op, finding.where.step) == ("numerics.nonfinite-forward", "log", 3)
    assert (finding.where.file, finding.where.line) == (programs.__file__, programs.line_of("of zeros"))
    assert finding.notes == ()


@pytest.mark.parametrize(
    ("target", "mark"),
    [
        (programs.detached, "cut by the loss"),
        (lambda: programs.detaching(unstuck.LightningModule), "cut by the step"),
        (lambda: programs.detaching(pl.LightningModule), "cut by the step"),
    ],
)
def test_a_loss_without_a_graph_is_a_finding_and_no_exception(target: programs.Target, mark: str) -> None:
    examination = examine(target, PLAN)
    assert statuses(examination)["dry run"] == "failed"
    (finding,) = examination.findings
    assert finding.code == "loss.disconnected"
    assert (finding.where.file, finding.where.line) == (programs.__file__, programs.line_of(mark))
    assert (examination.failure, examination.traceback) == (None, None)
    assert "first batch: float32 16x8" in of(examination, "dry run").told


def test_an_exception_of_that_kind_without_a_known_cause_is_told_as_raised() -> None:
    def target() -> Any:
        model, *rest = programs.plain()
        return model.requires_grad_(False), *rest

    examination = examine(target, PLAN)
    assert examination.findings == ()
    assert statuses(examination)["dry run"] == "raised"
    assert "does not require grad" in (examination.failure or "")


def test_large_gradients_are_told() -> None:
    examination = examine(lambda: programs.regression(scale=1e3), PLAN)
    gradients = of(examination, "gradients")
    assert gradients.status == "look"
    assert "large (median norm" in gradients.why


def test_an_undecided_overfit_test_is_not_judged_and_gives_no_advice_on_the_rate() -> None:
    examination = examine(lambda: programs.plain(rate=1e-3), Plan(steps=1))
    overfit = of(examination, "overfit")
    assert overfit.status == "not judged"
    assert "try --steps" in overfit.why
    assert "rate" not in overfit.told + overfit.why
    assert of(examination, "real run").status == "not judged"


def test_what_is_trained_in_turn_is_not_judged_and_the_rest_is() -> None:
    examination = examine(lambda: (programs.Adversaries(), programs.loader()), PLAN)
    assert statuses(examination) == {
        "dry run": "ok",
        "overfit": "not judged",
        "gradients": "ok",
        "numbers": "ok",
        "real run": "not judged",
    }
    assert "2 optimizers" in of(examination, "real run").why
    assert "manual optimisation" in of(examination, "overfit").why


def test_a_rate_that_learns_is_looked_for_under_a_trainer_too() -> None:
    examination = examine(lambda: (programs.Module(1e-7), programs.loader()), PLAN)
    finding = examination.findings[0]
    assert (finding.code, finding.confirmed) == ("optim.lr-too-low", True)
    assert finding.where.file == programs.__file__
    assert [item.status for item in examination.outcomes] == ["ok", "failed", *["not reached"] * 3]


@pytest.mark.parametrize("kind", ["model", "optimizer"])
def test_what_can_not_be_copied_is_built_again(kind: str) -> None:
    def target() -> Any:
        model = programs.Locked() if kind == "model" else programs.network()
        optimizer = (
            programs.OfModel(model, 1e-2) if kind == "optimizer" else torch.optim.Adam(model.parameters(), lr=1e-2)
        )
        return model, programs.loader(), nn.CrossEntropyLoss(), optimizer

    rebuilt, copied = examine(target, PLAN), examine(programs.plain, PLAN)
    assert set(statuses(rebuilt).values()) == {"ok"}
    # what is built anew is what a copy would have been
    assert of(rebuilt, "overfit").numbers == of(copied, "overfit").numbers


def test_a_batch_without_anything_to_learn_is_to_be_looked_at() -> None:
    def target() -> Any:
        model, batches, _, optimizer = programs.plain()
        return model, batches, lambda out, labels: nn.functional.cross_entropy(out, torch.zeros_like(labels)), optimizer

    overfit = of(examine(target, PLAN), "overfit")
    assert overfit.status == "look"
    assert "the loss ignores them" in overfit.why


def test_too_few_parameters_are_no_failure() -> None:
    def target() -> Any:
        _, batches, loss, _ = programs.regression()
        model = nn.Linear(8, 1)
        noisy = [(inputs, targets + torch.randn(16, 1)) for inputs, targets in batches]
        return model, noisy, loss, torch.optim.Adam(model.parameters(), lr=0.1)

    overfit = of(examine(target, PLAN), "overfit")
    assert (overfit.status, overfit.why[:38]) == ("not judged", "9 parameters can't hold 16 samples by ")


def test_frozen_parameters_are_not_missed_and_forgotten_ones_are() -> None:
    def target(frozen: bool) -> Any:
        model = programs.Module()
        trained = nn.Linear(model.net[0].in_features, model.net[0].out_features)
        model.net[0].load_state_dict(trained.state_dict())
        model.net[0].requires_grad_(not frozen)
        model.extra = nn.Linear(2, 2)
        model.extra.requires_grad_(not frozen)
        return model, programs.loader()

    assert of(examine(lambda: target(True), PLAN), "gradients").status == "ok"
    told = examine(lambda: target(False), PLAN)
    assert "extra" in " ".join(item.why + str(item.findings) for item in told.outcomes)


# -- who ends it -------------------------------------------------------------------------------------------------------


def test_an_exception_of_the_program_is_told_with_its_place() -> None:
    def target() -> Any:
        model, batches, _, optimizer = programs.plain()
        return model, batches, lambda output, wanted: nn.functional.mse_loss(output, wanted[:3].float()), optimizer

    examination = examine(target, PLAN)
    first = examination.outcomes[0]
    assert (first.status, [item.status for item in examination.outcomes[1:]]) == ("raised", ["not reached"] * 4)
    assert f"{Path(__file__).name}:" in first.why
    assert examination.traceback is not None
    assert "mse_loss" in examination.traceback


def test_an_exception_in_a_worker_is_told_with_its_place() -> None:
    def target() -> Any:
        model, _, loss, optimizer = programs.plain()
        return model, DataLoader(programs.Unreadable(), batch_size=16, num_workers=1), loss, optimizer

    examination = examine(target, PLAN)
    assert examination.failure is not None
    line = programs.line_of("unreadable")
    assert examination.failure.startswith("OSError: cannot read sample 40 (in a DataLoader's worker, ")
    assert examination.failure.endswith(f"programs.py:{line}, in __getitem__)")
    assert examination.faults == ()


def test_a_long_message_is_told_in_a_line() -> None:
    def target() -> Any:
        raise ValueError("first line\n" + "second line\n" * 100)

    examination = examine(target, PLAN)
    assert examination.failure is not None
    assert examination.failure.startswith("ValueError: first line [...] (")
    assert examination.traceback is not None
    assert "second line" in examination.traceback


def test_all_random_numbers_are_the_same_in_every_check() -> None:
    drawn: list[tuple[float, ...]] = []

    def target() -> Any:
        drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
        return programs.plain()

    examine(target, Plan(steps=20))
    assert len(drawn) >= 5
    assert len(set(drawn)) == 1


def test_a_program_that_exits_is_not_an_interruption() -> None:
    def target() -> Any:
        raise SystemExit(7)

    examination = examine(target, PLAN)
    assert not examination.interrupted
    assert "the program ended itself by sys.exit(7)" in examination.outcomes[0].why
    assert examination.failure is not None


@pytest.mark.parametrize("form", ["building", "plain", "module"])
def test_ctrl_c_is_an_interruption_wherever_it_comes(form: str) -> None:
    def interrupt(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)

    def target() -> Any:
        if form == "building":
            interrupt()
        if form == "plain":
            model, batches, _, optimizer = programs.plain()
            return model, batches, interrupt, optimizer
        module = programs.Module()
        module.training_step = interrupt
        return module, programs.loader()

    examination = examine(target, PLAN)
    assert examination.interrupted
    assert examination.failure is None
    assert [item.status for item in examination.outcomes] == ["interrupted", *["not reached"] * 4]


def test_a_fault_of_unstuck_is_told_as_one_and_the_other_checks_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Any:
        return {}["a fault that only a mistake of ours can make"]

    broken.__code__ = broken.__code__.replace(co_filename=checks.__file__)
    monkeypatch.setattr(checks, "judge_norms", broken)
    examination = examine(programs.plain, PLAN)
    assert statuses(examination) == dict.fromkeys(statuses(examination), "ok") | {"gradients": "not judged"}
    assert "a fault of unstuck itself" in of(examination, "gradients").why
    assert examination.failure is None
    assert "KeyError" in examination.faults[0]


def test_a_check_whose_watching_failed_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Any:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr(Losses, "backward_begins", broken)
    examination = examine(programs.plain, PLAN)
    assert statuses(examination)["real run"] == "not judged"
    assert "a part of the watching failed (losses)" in of(examination, "real run").why
    assert "KeyError" in of(examination, "real run").unchecked[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: (parts[0], [torch.randn(4, 8)] * 3, *parts[2:]), "pairs of inputs and target"),
        (lambda parts: (*parts[:2], lambda output: output.sum(), parts[3]), "positional argument"),
        (lambda parts: (*parts[:2], lambda output, target: output, parts[3]), "scalar"),
    ],
)
def test_mistakes_of_the_program_are_not_called_faults_of_unstuck(change: Any, message: str) -> None:
    examination = examine(lambda: change(programs.plain()), PLAN)
    assert examination.faults == ()
    assert examination.outcomes[0].status == "raised"
    assert message in examination.outcomes[0].why


def test_a_target_that_wants_arguments_is_refused() -> None:
    with pytest.raises(TargetError, match="without arguments, but missing a required argument: 'path'"):
        examine(lambda path: path, PLAN)  # type: ignore[misc]


# -- places ------------------------------------------------------------------------------------------------------------


def test_places_begin_in_the_program() -> None:
    def target() -> Any:
        model, batches, _, optimizer = programs.plain()
        return nn.Sequential(model, nn.Softmax(-1)), batches, nn.CrossEntropyLoss(), optimizer

    def logarithm() -> Any:
        model, batches, _, optimizer = programs.plain()
        return model, batches, lambda output, wanted: torch.log(output.relu()).mean(), optimizer

    for build in (target, logarithm, lambda: programs.plain(rate=1e-7)):
        findings = examine(build, PLAN).findings
        assert findings
        for finding in findings:
            text = str(finding)
            assert "--rerun" not in text
            assert "test_places_begin_in_the_program" not in [frame.function for frame in finding.where.chain]
            assert not any("pytest" in frame.file for frame in finding.where.chain)


# -- traces ------------------------------------------------------------------------------------------------------------


def interrupted(*arguments: Any) -> Any:
    raise KeyboardInterrupt


def failing(*arguments: Any) -> Any:
    raise ValueError("of the program")


def world() -> dict[str, Any]:
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": np.random.get_state()[1].tolist(),  # type: ignore[index]
        "python": random.getstate(),
        "session": active_session(),
        "trials": Session._trials,
        "signals": [signal.getsignal(item) for item in (signal.SIGINT, signal.SIGTERM)],
        "log": logging.getLogger("unstuck").level,
        "filters": list(warnings.filters),
        "grad": torch.is_grad_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "backward": torch.Tensor.backward,
        "forward": nn.Module.__call__,
    }


def tensors(model: nn.Module) -> list[Any]:
    return [(id(item), item.data_ptr(), item.tolist(), item.requires_grad, item.grad) for item in model.parameters()]


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), failing, interrupted])
def test_objects_that_are_handed_out_are_afterwards_as_before(
    loss: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(3)
    batches = programs.loader(generator=generator)
    before, around = tensors(model), world()
    buffers = [item.tolist() for item in model.buffers()]
    examination = examine(lambda: (model, batches, loss, optimizer), PLAN)
    assert (set(statuses(examination).values()) == {"ok"}) == isinstance(loss, nn.Module)
    assert tensors(model) == before
    assert [item.tolist() for item in model.buffers()] == buffers
    assert all(item.training for item in model.modules())
    assert optimizer.state_dict()["state"] == {}
    assert optimizer.param_groups[0]["lr"] == 1e-2
    assert generator.initial_seed() == 3
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(3).get_state())
    assert world() == around
    assert list(tmp_path.iterdir()) == []


def test_a_module_that_is_handed_out_is_afterwards_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module, batches = programs.Module(), programs.loader()
    before, around, attributes = tensors(module), world(), set(vars(module))
    examination = examine(lambda: (module, batches), PLAN)
    assert set(statuses(examination).values()) == {"ok"}
    assert (tensors(module), module.seen, set(vars(module))) == (before, [], attributes)
    assert module._trainer is None
    assert world() == around
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature", "ignore:`torch.jit.script` is")
@pytest.mark.parametrize("kind", ["lazy", "scripted"])
def test_modules_of_other_kinds_are_examined(kind: str) -> None:
    def target() -> Any:
        if kind == "scripted":
            return programs.plain(torch.jit.script(programs.network()))
        return programs.plain(nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(2)))

    examination = examine(target, PLAN)
    assert examination.faults == ()
    assert set(statuses(examination).values()) == {"ok"}


def test_a_watch_around_it_sees_nothing_of_it() -> None:
    with watch(budget=0.0) as around:
        assert set(statuses(examine(programs.plain, Plan(steps=20))).values()) <= {"ok", "not judged", "look"}
    assert list(around.recording.loss_series) == []
    assert around.findings == ()
