"""``barebones``, ``detect_anomaly``, ``fast_dev_run``, ``max_time``, signals, and how far the user's step is below
``fit``.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, base_module, loader
from unstuck.trainer.interrupts import TerminationRequested

# The module can validate; most of these fits don't.
pytestmark = pytest.mark.filterwarnings("ignore:There is .*validation_step")

Base: Any = base_module(OURS)


def trainer(**keywords: Any) -> Any:
    return unstuck.Trainer(**{**QUIET, "max_epochs": 1, **keywords})


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"precision": "bf16-mixed"},
        {"precision": "16-mixed"},
        {"accumulate_grad_batches": 2, "gradient_clip_val": 1.0},
    ],
)
def test_at_most_eight_frames_lie_between_fit_and_the_step(keywords: dict[str, Any]) -> None:
    package = os.path.dirname(unstuck.__file__)
    counts = []

    class Counting(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            stack = traceback.extract_stack(sys._getframe(1))
            counts.append(sum(frame.filename.startswith(package) for frame in stack))
            return super().training_step(batch, batch_idx)

    trainer(**keywords).fit(Counting(), loader())
    assert max(counts) <= 8


def test_an_overridden_optimizer_step_stays_within_eight_frames() -> None:
    package = os.path.dirname(unstuck.__file__)
    counts = []

    class Counting(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            counts.append(sum(frame.filename.startswith(package) for frame in traceback.extract_stack()))
            return super().training_step(batch, batch_idx)

        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            super().optimizer_step(*args, **kwargs)

    trainer().fit(Counting(), loader())
    assert max(counts) <= 8


def test_barebones_switches_off_what_costs_time() -> None:
    module = Base()
    bare = unstuck.Trainer(accelerator="cpu", max_epochs=2, barebones=True)
    assert bare.loggers == []
    assert bare.progress_bar_callback is None
    assert bare.num_sanity_val_steps == 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bare.fit(module, loader(), loader(8, shuffle=False))
    assert [str(warning.message) for warning in caught] == ["`self.log()` does nothing with `Trainer(barebones=True)`."]
    assert bare.callback_metrics == {}
    assert len(module.losses) == 12


def test_anomaly_mode_holds_in_the_fit_only_and_tells_of_its_cost(caplog: pytest.LogCaptureFixture) -> None:
    class Watching(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            assert torch.is_anomaly_enabled()
            return super().training_step(batch, batch_idx)

        def test_step(self, batch: Any, batch_idx: int) -> Any:
            assert not torch.is_anomaly_enabled()

    with caplog.at_level("INFO", logger="unstuck"):
        anomalous = trainer(detect_anomaly=True)
    assert any("detect_anomaly" in text and "slower" in text for text in caplog.messages)
    module = Watching()
    anomalous.fit(module, loader())
    anomalous.test(module, loader(shuffle=False), verbose=False)
    assert not torch.is_anomaly_enabled()


def test_anomaly_mode_names_the_forward_of_a_nan(tmp_path: Path) -> None:
    class Broken(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            zero = (self.net(batch[0]) * 0).sum()
            return torch.sqrt(zero) * 0 + zero

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="nan"):
            trainer(detect_anomaly=True, default_root_dir=tmp_path).fit(Broken(), loader())
    texts = [str(item.message) for item in caught]
    assert any("Error detected in SqrtBackward0" in text for text in texts)
    assert any("numerics.nonfinite-backward" in text for text in texts)


def test_a_global_anomaly_mode_of_the_user_s_own_stays_on() -> None:
    seen = []

    class Watching(Base):
        def on_train_start(self) -> None:
            seen.append(torch.is_anomaly_enabled())

    with torch.autograd.set_detect_anomaly(True):
        trainer().fit(Watching(), loader())
        assert torch.is_anomaly_enabled()
    assert seen == [True]


def test_a_dry_run_lists_what_it_switches_off(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="unstuck"):
        dry = trainer(fast_dev_run=2, max_epochs=7, logger=True, num_sanity_val_steps=2)
    line = next(text for text in caplog.messages if "fast_dev_run" in text)
    assert all(word in line for word in ("loggers", "checkpoints", "early stopping", "sanity check"))
    module = Base()
    dry.fit(module, loader(), loader(shuffle=False))
    assert (dry.global_step, dry.current_epoch, len(module.losses)) == (2, 1, 2)
    assert dry.fast_dev_run == 2
    # Code that writes to the logger itself still works.
    module.logger.experiment.add_scalar("x", 1.0, 0)


def test_the_time_limit_ends_the_fit_after_a_validation(caplog: pytest.LogCaptureFixture) -> None:
    module = Base()
    limited = trainer(max_epochs=-1, max_time=timedelta(microseconds=1))
    with caplog.at_level("INFO", logger="unstuck"):
        limited.fit(module, loader(), loader(8, shuffle=False))
    assert limited.global_step == 1
    assert "val_loss" in limited.callback_metrics
    assert any("max_time" in text for text in caplog.messages)


def test_min_epochs_outlast_the_time_limit() -> None:
    limited = trainer(max_epochs=-1, min_epochs=2, max_time={"microseconds": 1})
    limited.fit(Base(), loader())
    assert limited.current_epoch == 2


def test_time_decides_when_to_validate() -> None:
    class Counting(Base):
        validations = 0

        def on_validation_start(self) -> None:
            self.validations += 1

    often, seldom = Counting(), Counting()
    trainer(val_check_interval=timedelta(microseconds=1)).fit(often, loader(), loader(8, shuffle=False))
    trainer(val_check_interval="01:00:00:00").fit(seldom, loader(), loader(8, shuffle=False))
    assert (often.validations, seldom.validations) == (6, 0)


def test_sigterm_ends_the_fit_in_order() -> None:
    called = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: called.append("own handler"))
    try:

        class Terminated(Base):
            def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
                if batch_idx == 1:
                    os.kill(os.getpid(), signal.SIGTERM)

        class Watching(unstuck.Callback):
            def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
                called.append(type(exception).__name__)

        module = Terminated()
        with pytest.raises(TerminationRequested, match="SIGTERM") as caught:
            trainer(callbacks=[Watching()]).fit(module, loader())
        assert called == ["own handler", "TerminationRequested"]
        # As the shell tells of a process that SIGTERM has ended, and past whoever catches errors.
        assert caught.value.code == 143
        assert not isinstance(caught.value, Exception)
        assert len(module.losses) == 2
        assert signal.getsignal(signal.SIGTERM).__name__ == "<lambda>"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_keyboard_ends_the_fit_with_hooks_and_an_exit_code() -> None:
    called = []

    class Interrupted(Base):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            raise KeyboardInterrupt

    class Watching(unstuck.Callback):
        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            called.append(type(exception).__name__)

    interrupted = trainer(callbacks=[Watching()])
    with pytest.raises(SystemExit) as caught:
        interrupted.fit(Interrupted(), loader())
    assert caught.value.code == 1
    assert called == ["KeyboardInterrupt"]
    assert interrupted.interrupted


def test_the_first_exception_is_the_one_that_is_raised() -> None:
    class Broken(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise ValueError("first")

    class Worse(unstuck.Callback):
        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            raise RuntimeError("second")

    called = []

    class Watching(unstuck.Callback):
        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            called.append(str(exception))

    with pytest.raises(ValueError, match="first") as caught:
        trainer(callbacks=[Worse(), Watching()]).fit(Broken(), loader())
    assert called == ["first"]
    if sys.version_info >= (3, 11):
        assert any("second" in note for note in caught.value.__notes__)


def test_a_trainer_can_go_on_after_an_exception() -> None:
    class Once(Base):
        broken = True

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.broken:
                raise ValueError("once")
            return super().training_step(batch, batch_idx)

    module, again = Once(), trainer()
    with pytest.raises(ValueError, match="once"):
        again.fit(module, loader())
    module.broken = False
    again.fit(module, loader())
    assert again.state.finished
    assert again.global_step == 6
    assert nn.utils.parameters_to_vector(module.parameters()).isfinite().all()
