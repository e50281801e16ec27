"""A checkpoint at an exception."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.side_by_side import OURS, Library, base_module, run
from unstuck.callbacks import OnExceptionCheckpoint

pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


class Failing(base_module(OURS)):  # type: ignore[misc]
    fails = True

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.fails and self.trainer.global_step == 4:
            raise RuntimeError("now")


def test_saves_and_takes_away(tmp_path: Path) -> None:
    callback = OnExceptionCheckpoint(tmp_path / "new", "last_words")
    module = Failing()

    def make(library: Library) -> Any:
        return module

    with pytest.raises(RuntimeError, match="now"):
        run(OURS, make, max_epochs=1, enable_checkpointing=None, callbacks=[callback])
    assert callback.ckpt_path == str(tmp_path / "new" / "last_words.ckpt")
    loaded = Failing.load_from_checkpoint(callback.ckpt_path)
    assert all(torch.equal(weight, module.state_dict()[name]) for name, weight in loaded.state_dict().items())
    assert torch.load(callback.ckpt_path, weights_only=True)["global_step"] == 4
    Failing.fails = False
    try:
        run(OURS, make, max_epochs=1, enable_checkpointing=None, callbacks=[callback])
    finally:
        Failing.fails = True
    assert not Path(callback.ckpt_path).exists()


def test_needs_a_name() -> None:
    with pytest.raises(ValueError, match="filename"):
        OnExceptionCheckpoint(".", "")
