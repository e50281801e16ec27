"""From which frames a program can be continued within a step."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from unstuck.instruments.moments import _chain, _loop_frames


def library(name: str) -> Any:
    """A function of a library's module that calls what it is given."""
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile("def call(body):\n    return body()\n", torch.__file__, "exec"), namespace)
    return namespace["call"]


@pytest.mark.parametrize(
    ("name", "goes_on"),
    [
        ("accelerate.optimizer", True),
        ("unstuck.trainer.trainer", False),
        ("unstuck.workflow.overfit", False),
        ("lightning.pytorch.trainer.call", False),
        ("transformers.trainer", False),
    ],
)
def test_a_loop_around_a_whole_training_is_not_continued(name: str, goes_on: bool) -> None:
    call, here = library(name), sys._getframe().f_code
    for kept in range(1):
        direct = _loop_frames(sys._getframe())
        through = call(lambda: _loop_frames(sys._getframe()))
        chain = call(lambda: _chain(sys._getframe()))
        assert kept == 0
    assert direct[0].code is here
    assert bool(through) is goes_on
    own = next(item for item in chain if item.code is here)
    assert (own.values is not None) is goes_on
