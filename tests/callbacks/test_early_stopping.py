"""Early stopping: when it stops, why, and its state."""

import logging
import math
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping as Reference

import unstuck
from tests.trainer.side_by_side import OURS, THEIRS, Library, base_module, compare, loader, run
from unstuck.callbacks import EarlyStopping
from unstuck.callbacks.early_stopping import EarlyStoppingReason
from unstuck.errors import MisconfigurationException

pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


def stopping(library: Library, *args: Any, **kwargs: Any) -> Any:
    return (EarlyStopping if library is OURS else Reference)(*args, **kwargs)


def scripted(values: list[float], where: str = "validation") -> Any:
    """A module that logs one value after the other under "score"."""

    def make(library: Library) -> Any:
        class Scripted(base_module(library)):  # type: ignore[misc]
            def on_validation_epoch_end(self) -> None:
                if where == "validation" and not self.trainer.sanity_checking:
                    self.log("score", values[self.current_epoch])

            def on_train_epoch_end(self) -> None:
                if where == "training":
                    self.log("score", values[self.current_epoch])

        return Scripted()

    return make


CASES: list[tuple[list[float], dict[str, Any]]] = [
    ([5, 4, 3, 2, 1, 0], {}),
    ([5, 4, 4.5, 4.5, 4.5, 4.5], {"patience": 2}),
    ([5, 4, 3.95, 3.9, 3.85, 3.8], {"patience": 2, "min_delta": 0.1}),
    ([1, 2, 3, 2, 2, 2], {"mode": "max", "patience": 2}),
    ([1, 2, 2.05, 2.06, 2, 2], {"mode": "max", "patience": 2, "min_delta": 0.1}),
    ([5, 4, 0.5, 0.4, 1, 1], {"stopping_threshold": 1.0}),
    ([5, 4, 0.5, 0.4, 1, 1], {"stopping_threshold": 4.5, "mode": "max"}),
    ([5, 4, 20, 1, 1, 1], {"divergence_threshold": 10.0}),
    ([5, 4, -20, 1, 1, 1], {"divergence_threshold": -10.0, "mode": "max"}),
    ([5, 4, math.nan, 1, 1, 1], {}),
    ([5, 4, math.inf, 1, 1, 1], {}),
    ([5, math.nan, math.nan, 1, 1, 1], {"check_finite": False, "patience": 2}),
    ([5, 5, 5, 5, 5, 5], {"patience": 1}),
    ([5, 4, 3, 3, 3, 3], {"patience": 2, "check_on_train_epoch_end": False}),
]


@pytest.mark.parametrize(("values", "options"), CASES, ids=str)
@pytest.mark.parametrize("where", ["validation", "training"])
def test_stops_where_lightning_does(values: list[float], options: dict[str, Any], where: str) -> None:
    if where == "training" and options.get("check_on_train_epoch_end") is False:
        pytest.skip("the value isn't there yet")
    callbacks: dict[str, Any] = {}

    def use(trainer: Any, module: Any) -> Any:
        trainer.fit(module, loader(), loader(8, shuffle=False))
        callback = trainer.early_stopping_callback
        callbacks[type(trainer).__module__] = callback
        return None

    outcomes = []
    for library in (OURS, THEIRS):
        callback = stopping(library, "score", **options)
        outcomes.append(run(library, scripted(values, where), use=use, max_epochs=6, callbacks=[callback]))
    ours, theirs = outcomes
    assert (ours.steps, ours.epochs) == (theirs.steps, theirs.epochs)
    own, reference = callbacks.values()
    assert own.state_key == reference.state_key
    mine, other = own.state_dict(), reference.state_dict()
    assert mine.keys() == other.keys()
    for key in ("wait_count", "stopped_epoch", "patience", "stopping_reason"):
        assert mine[key] == other[key], key
    assert float(mine["best_score"]) == float(other["best_score"])
    assert not math.isnan(float(mine["best_score"]))
    assert own.min_delta == reference.min_delta


def test_states_are_exchanged_with_lightning() -> None:
    own, reference = EarlyStopping("score", patience=4), Reference("score", patience=7)
    reference.wait_count, reference.best_score = 2, torch.tensor(0.5)
    own.load_state_dict(reference.state_dict())
    assert (own.wait_count, own.patience, own.best_score.item()) == (2, 7, 0.5)
    reference.load_state_dict(EarlyStopping("score", patience=4).state_dict())
    assert reference.patience == 4
    old = {"wait_count": 1, "stopped_epoch": 3, "best_score": torch.tensor(1.0), "patience": 2}
    own.load_state_dict(old)
    assert own.stopping_reason is EarlyStoppingReason.NOT_STOPPED


def test_says_reason_and_epoch(caplog: pytest.LogCaptureFixture) -> None:
    callback = EarlyStopping("score")
    with caplog.at_level(logging.INFO, logger="unstuck"):
        run(
            OURS,
            scripted([5, 4, math.nan, 1]),
            use=lambda trainer, module: trainer.fit(module, loader(), loader(8, shuffle=False)),
            max_epochs=4,
            callbacks=[callback],
        )
    assert callback.stopping_reason is EarlyStoppingReason.NON_FINITE_METRIC
    assert callback.stopped_epoch == 2
    assert callback.stopping_reason_message == "Epoch 2: score = nan isn't finite; the best was 4."
    assert sum("EarlyStopping ends the fit. Epoch 2: score = nan" in line for line in caplog.messages) == 1


def test_missing_metric() -> None:
    with pytest.raises(RuntimeError, match=r"no such metric; there are .*loss"):
        run(OURS, max_epochs=1, callbacks=[EarlyStopping("score")])
    lenient = EarlyStopping("score", strict=False, verbose=True)
    with pytest.warns(RuntimeWarning, match="no such metric"):
        outcome = run(OURS, max_epochs=2, callbacks=[lenient])
    assert outcome.epochs == 2


def test_dry_run_and_evaluation_are_never_stopped() -> None:
    callback = EarlyStopping("absent")
    run(OURS, val=lambda: loader(8, shuffle=False), fast_dev_run=True, callbacks=[callback])
    run(OURS, train=lambda: loader(8, shuffle=False), method="validate", callbacks=[callback])


def test_bad_mode() -> None:
    for cls, error in ((EarlyStopping, MisconfigurationException), (Reference, Exception)):
        with pytest.raises(error):
            cls("score", mode="smallest")


def test_metric_of_training_alone_is_parity() -> None:
    compare(max_epochs=3, callbacks=None)
    outcomes = [
        run(library, max_epochs=8, callbacks=[stopping(library, "loss", patience=1, min_delta=0.05)])
        for library in (OURS, THEIRS)
    ]
    assert outcomes[0].epochs == outcomes[1].epochs < 8
    assert isinstance(EarlyStopping("loss"), unstuck.Callback)
    assert not isinstance(EarlyStopping("loss"), pl.Callback)
