"""A fit that is ended while it waits for its next batch."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.trainer.checkpoints.training_with_state import NoisyDigits, Stop, assert_same_end, fit
from unstuck.callbacks import ModelCheckpoint

PROGRAM = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset
import unstuck
from unstuck.callbacks import ModelCheckpoint

class Slow(Dataset):
    def __len__(self): return 40
    def __getitem__(self, index):
        if index >= 6: time.sleep(60)
        return torch.ones(4) * index

class Module(unstuck.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx): return self.layer(batch).pow(2).mean()
    def on_train_batch_end(self, *_): print("step", self.global_step, flush=True)
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.001)

class Tells(unstuck.Callback):
    def on_exception(self, trainer, pl_module, exception): print(type(exception).__name__, flush=True)

unstuck.Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    callbacks=[Tells(), ModelCheckpoint(sys.argv[1], save_on_exception=True, every_n_epochs=0)],
).fit(Module(), DataLoader(Slow(), batch_size=2, num_workers=2))
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no groups of processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_program_and_workers(number: signal.Signals, tmp_path: Path) -> None:
    """As Ctrl-C in a terminal, which reaches the workers as well, and they die of it."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    try:
        for line in program.stdout:
            if line.startswith("step 3"):
                break
        time.sleep(0.5)
        start = time.monotonic()
        os.killpg(program.pid, number)
        rest, _ = program.communicate(timeout=60)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
    assert rest.split() == ["KeyboardInterrupt" if number == signal.SIGINT else "TerminationRequested"]
    assert program.returncode == (1 if number == signal.SIGINT else 128 + number)
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["epoch=0-step=3.ckpt"]
    assert time.monotonic() - start < 30


class Sends(NoisyDigits):
    """Has begun to draw a sample's random numbers when it ends the program, in one way or another."""

    def __init__(self, at: int, end: Any) -> None:
        self.calls, self.at, self.end = 0, at, end

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        torch.rand(3)
        if self.calls == self.at:
            self.end()
        return super().__getitem__(index)


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    raise OSError("what the signal has done to a pipe, say")


def _fail() -> None:
    raise Stop


@pytest.mark.parametrize("end", [_interrupt, _terminate, _fail])
@pytest.mark.parametrize("at", [7, 23])
def test_batch_that_was_not_given_is_drawn_again(
    at: int, end: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="unstuck")

    def loader(at: int = -1) -> DataLoader[Any]:
        return DataLoader(Sends(at, end), batch_size=4, shuffle=True)

    def saver() -> Any:
        return ModelCheckpoint(tmp_path, save_on_exception=True, every_n_epochs=0)

    through = fit(loader=loader)
    with pytest.raises(Stop if end is _fail else SystemExit):
        fit(loader=lambda: loader(at), callbacks=[saver()])
    (path,) = tmp_path.glob("*.ckpt")
    assert path.stem.endswith(f"step={(at - 1) // 4}")
    assert_same_end(fit(loader=loader, ckpt_path=path, seed=9, callbacks=[saver()]), through)
