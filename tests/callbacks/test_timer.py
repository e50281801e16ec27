"""The timer."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from lightning.pytorch.callbacks import Timer as Reference

from tests.trainer.side_by_side import OURS, base_module, loader, run
from unstuck.callbacks import Timer
from unstuck.callbacks import timer as timer_module
from unstuck.errors import MisconfigurationException

pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


@pytest.mark.parametrize("duration", ["00:00:01:30", timedelta(seconds=90), {"minutes": 1, "seconds": 30}])
def test_durations(duration: Any) -> None:
    assert Timer(duration).time_remaining() == Reference(duration).time_remaining() == 90


@pytest.mark.parametrize("keywords", [{"duration": "soon"}, {"duration": {"moons": 2}}, {"interval": "batch"}])
def test_what_is_refused(keywords: dict[str, Any]) -> None:
    with pytest.raises(MisconfigurationException, match="Timer"):
        Timer(**keywords)


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_ends_the_fit(interval: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(timer_module, "time", clock)

    class Slow(base_module(OURS)):  # type: ignore[misc]
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            clock.now += 0.02

    timer = Timer({"milliseconds": 50}, interval=interval)
    with caplog.at_level("INFO", logger="unstuck"):
        outcome = run(OURS, lambda library: Slow(), max_epochs=5, callbacks=[timer])
    assert outcome.steps == (3 if interval == "step" else 6)
    assert sum("Timer ends the fit" in line for line in caplog.messages) == 1
    assert timer.time_remaining() < 0


def test_measures_stages() -> None:
    timer = Timer()
    assert timer.start_time("test") is timer.end_time("validate") is timer.time_remaining() is None
    run(OURS, val=lambda: loader(8, shuffle=False), max_epochs=1, callbacks=[timer])
    run(OURS, train=lambda: loader(8, shuffle=False), method="test", callbacks=[timer])
    for stage in ("train", "validate", "test"):
        began, ended = timer.start_time(stage), timer.end_time(stage)
        assert began is not None and ended is not None
        assert 0 < timer.time_elapsed(stage) == ended - began < 60
    assert timer.time_elapsed("predict") == 0


def test_time_before_a_resume_counts() -> None:
    reference = Reference()
    state = reference.state_dict()
    assert state.keys() == Timer().state_dict().keys()
    assert state["time_elapsed"].keys() == Timer().state_dict()["time_elapsed"].keys()
    state["time_elapsed"]["train"] = 100.0
    timer = Timer("00:00:00:50")
    timer.load_state_dict(state)
    assert timer.time_remaining() == -50
    outcome = run(OURS, max_epochs=3, callbacks=[timer])
    assert outcome.steps == 0
    reference.load_state_dict(timer.state_dict())
    assert reference.time_elapsed() >= 100
