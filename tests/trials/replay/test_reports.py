"""What a step tells its trainer and its loggers, while it runs again."""

from __future__ import annotations

import threading
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

import unstuck
from unstuck.loggers import CSVLogger as OwnCSVLogger
from unstuck.measure import rng
from unstuck.trials.replay.heap import HeapSnapshot
from unstuck.trials.replay.reports import unheard_by_loggers, unheard_by_trainers
from unstuck.trials.replay.sandbox import sandbox

BASES = [unstuck.LightningModule, pl.LightningModule]


def kinds_of(*objects: Any) -> set[type]:
    return HeapSnapshot(objects, lambda iterator: iterator).kinds


@pytest.mark.parametrize("base", BASES)
def test_a_module_reports_to_nobody_in_this_thread_and_afterwards_as_before(base: Any) -> None:
    class Prefixed(base):  # type: ignore[misc]
        def log(self, name: str, *args: Any, **kwargs: Any) -> Any:
            return super().log(f"own/{name}", *args, **kwargs)

    module = Prefixed()
    calls = [
        lambda: module.log("loss", 1.0),
        lambda: module.log_dict({"loss": 1.0}),
        lambda: module.print("loss"),
    ]
    before = [vars(base)[name] for name in ("log", "log_dict", "print")]
    failures: list[Exception] = []

    def in_another_thread() -> None:
        try:
            module.print("loss")
        except Exception as error:  # noqa: BLE001 - which one is the library's own business
            failures.append(error)

    with unheard_by_trainers(kinds_of({"holder": [module]})):
        assert [call() for call in calls] == [None, None, None]
        other = threading.Thread(target=in_another_thread)
        other.start()
        other.join()
    assert len(failures) == 1, "without a trainer `print` must fail, as it does outside of a replay"
    assert [vars(base)[name] for name in ("log", "log_dict", "print")] == before
    assert vars(module).keys().isdisjoint({"log", "log_dict", "print"})


def test_methods_of_those_names_that_report_to_nobody_are_left_alone() -> None:
    class Density(torch.nn.Module):
        def log(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(x)

    class Own(torch.nn.Module):
        def training_step(self) -> None: ...

        def log_dict(self) -> None: ...

        def log(self, x: float) -> float:
            return 2.0 * x

    density, own = Density(), Own()
    with unheard_by_trainers(kinds_of(density, own)):
        assert float(density.log(torch.tensor(1.0))) == 0.0
        assert own.log(2.0) == 4.0


@pytest.mark.parametrize("kind", [CSVLogger, OwnCSVLogger])
def test_loggers_get_nothing_inside_of_the_sandbox(kind: Any, tmp_path: Any) -> None:
    logger = kind(tmp_path)
    logger.log_metrics({"a": 1.0}, step=0)
    logger.save()
    before = {item: item.read_text() for item in tmp_path.rglob("*.csv")}
    assert before
    with sandbox([{"logger": logger}], [], rng.capture(), lambda *_: None):
        logger.log_metrics({"a": 2.0}, step=1)
        logger.save()
    logger.save()
    assert {item: item.read_text() for item in tmp_path.rglob("*.csv")} == before
    with unheard_by_loggers(kinds_of(logger)):
        logger.log_metrics({"a": 3.0}, step=2)
    logger.log_metrics({"a": 4.0}, step=3)
    logger.save()
    text = "".join(item.read_text() for item in tmp_path.rglob("*.csv"))
    assert "4.0" in text
    assert "3.0" not in text
