"""Inputs and targets that are shuffled apart are found in a program's lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.program.marked_program import Program
from unstuck.program.shuffles import separate_shuffles


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("x = x[torch.randperm(9)]  # one\ny = y[torch.randperm(9)]  # two\n", ["one", "two"]),
        ("np.random.shuffle(x)  # one\nnp.random.shuffle(y)  # two\n", ["one", "two"]),
        ("a = rng.permutation(9)\nb = rng.permutation(9)\nx = x[a]  # one\ny = y[b]  # two\n", ["one", "two"]),
        ("order = torch.randperm(9)\nx = x[order]\ny = y[order]\n", []),
        ("x = x[torch.randperm(9)]\n", []),
        ("def f(x):\n    return x[torch.randperm(9)]\ndef g(y):\n    return y[torch.randperm(9)]\n", []),
    ],
)
def test_arrays_that_are_shuffled_by_orders_of_their_own(tmp_path: Path, text: str, marks: list[str]) -> None:
    program = Program(tmp_path, text)
    assert [frame.line for frame in separate_shuffles(str(program.file))] == [program.line(mark) for mark in marks]
