"""tqdm's bars."""

import pickle
import sys
from typing import Any

import pytest

from tests.trainer.side_by_side import OURS, base_module, loader, run
from unstuck.callbacks import RichProgressBar, TQDMProgressBar
from unstuck.callbacks.progress import tqdm_progress

pytest.importorskip("tqdm")
pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


def shown(capsys: pytest.CaptureFixture[str], bar: TQDMProgressBar, method: str = "fit", **keywords: Any) -> str:
    run(
        OURS,
        val=lambda: loader(8, shuffle=False),
        method=method,
        max_epochs=2,
        enable_progress_bar=True,
        callbacks=[bar],
        **keywords,
    )
    captured = capsys.readouterr()
    assert "it/s" not in captured.out
    return captured.err


def test_bars_of_a_fit(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, TQDMProgressBar(), num_sanity_val_steps=1)
    for part in ("Sanity Checking", "Epoch 0", "Epoch 1", "Validation DataLoader 0", "6/6", "loss_step="):
        assert part in text, part


@pytest.mark.parametrize(
    ("method", "what"), [("test", "Testing"), ("predict", "Predicting"), ("validate", "Validation")]
)
def test_bars_of_the_rest(method: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{what} DataLoader 0: 100%" in shown(capsys, TQDMProgressBar(), method)


def test_off(capsys: pytest.CaptureFixture[str]) -> None:
    bar = TQDMProgressBar(refresh_rate=0)
    assert bar.is_disabled and not bar.is_enabled
    assert "it/s" not in shown(capsys, bar)
    bar = TQDMProgressBar()
    bar.disable()
    assert "it/s" not in shown(capsys, bar)
    bar.enable()
    assert bar.is_enabled


def test_draws_at_most_at_its_interval(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tqdm_progress, "INTERVAL", 1000.0)
    bar = TQDMProgressBar()
    draws: list[int] = []
    monkeypatch.setattr(bar, "_draw", lambda tqdm, completed, begin: draws.append(completed))
    bar._next_draw = 1e12
    run(OURS, max_epochs=2, enable_progress_bar=True, callbacks=[bar])
    assert draws == [6, 6]
    capsys.readouterr()


def test_leave_keeps_one_bar_for_each_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, TQDMProgressBar(leave=True)).split("\n")
    assert any("Epoch 0: 100%" in line for line in lines[:-1])
    assert any("Epoch 1: 100%" in line for line in lines)


def test_prints_above_the_bars(capsys: pytest.CaptureFixture[str]) -> None:
    class Talking(base_module(OURS)):  # type: ignore[misc]
        def on_train_batch_end(self, *args: Any) -> None:
            self.print("batch", 1, flush=True)

    run(OURS, lambda library: Talking(), max_epochs=1, enable_progress_bar=True, callbacks=[TQDMProgressBar()])
    assert capsys.readouterr().out.count("batch 1\n") == 6
    TQDMProgressBar().print("without a bar")
    assert capsys.readouterr().out == "without a bar\n"


def test_bars_before_their_time_and_pickling() -> None:
    bar = TQDMProgressBar(process_position=2)
    for name in ("train", "val", "test", "predict"):
        with pytest.raises(TypeError, match=f"{name}_progress_bar"):
            getattr(bar, f"{name}_progress_bar")
        setattr(bar, f"{name}_progress_bar", sys.stderr)
    assert pickle.loads(pickle.dumps(bar))._train_progress_bar is None
    assert bar.process_position == 2


def test_environment_raises_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TQDM_MINITERS", "7")
    assert TQDMProgressBar().refresh_rate == 7


def test_an_own_bar_replaces_the_default() -> None:
    trainer = OURS.Trainer(accelerator="cpu", logger=False, max_epochs=1, callbacks=[TQDMProgressBar()])
    assert not any(isinstance(callback, RichProgressBar) for callback in trainer.callbacks)
    assert isinstance(trainer.progress_bar_callback, TQDMProgressBar)


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"unstuck\[tqdm\]"):
        TQDMProgressBar()


def test_bars_are_closed_at_an_exception(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(base_module(OURS)):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise RuntimeError("now")

    bar = TQDMProgressBar()
    with pytest.raises(RuntimeError, match="now"):
        run(OURS, lambda library: Failing(), max_epochs=1, enable_progress_bar=True, callbacks=[bar])
    assert bar.train_progress_bar.disable
    capsys.readouterr()
