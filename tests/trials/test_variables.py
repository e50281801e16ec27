"""Variables of a step: what is kept of them, and how running frames get them back."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from unstuck.instruments.moments import FrameMoment, Moment
from unstuck.trials.variables import put_into_frames, variables_of


def saved_of(frame: FrameType, **values: Any) -> list[dict[str, Any]]:
    moment = Moment("forward", (FrameMoment(id(frame), frame.f_code, 0, values, {}),), None)
    return variables_of(moment)


def give(present: Any, saved: Any, name: str) -> Any:
    assert present != saved if not isinstance(saved, torch.Tensor) else not torch.equal(present, saved)
    return saved


def test_variables_of_functions_modules_and_closures_are_put_back() -> None:
    outer = 1

    def function() -> tuple[Any, ...]:
        count, rows, same, part = 1, torch.zeros(2), "same", slice(0, 8)
        saved = saved_of(
            sys._getframe(), count=5, rows=torch.ones(3), same="same", part=slice(8, 16), outer=7, unknown=3
        )

        def call() -> None:
            put_into_frames(saved, sys._getframe(), give)

        call()
        return count, rows.tolist(), same, part, outer

    assert function() == (5, [1.0, 1.0, 1.0], "same", slice(8, 16), 7)
    assert outer == 7
    space: dict[str, Any] = {"put": put_into_frames, "give": give, "saved_of": saved_of, "sys": sys, "step": 0}
    exec("frame = sys._getframe()\nput(saved_of(frame, step=30), frame, give)\nafter = step + 1", space)
    assert space["after"] == 31


def test_frames_of_other_functions_are_left_alone() -> None:
    def other() -> list[dict[str, Any]]:
        count = 2
        return saved_of(sys._getframe(), count=count)

    count = 1
    put_into_frames(other(), sys._getframe(), give)
    assert count == 1


def test_only_what_can_be_written_down_is_kept() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    values = {
        "step": 3, "rows": slice(8, 16), "pair": (torch.ones(2), "a"), "table": {"x": torch.zeros(1)}, "none": None,
        "weight": weight, "loss": weight.sum(), "model": torch.nn.Linear(1, 1), "mixed": [1, object()],
        "large": torch.empty(1 << 25, device="meta"),
    }  # fmt: skip
    (entry,) = saved_of(sys._getframe(), **values)
    assert set(entry["values"]) == {"step", "rows", "pair", "table", "none"}
    assert entry["function"] == "test_only_what_can_be_written_down_is_kept"
    assert variables_of(None) == []
