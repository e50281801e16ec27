"""Whatever code does inside the sandbox, afterwards everything is as it was before."""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from unstuck.measure import rng
from unstuck.trials.replay.heap import HeapSnapshot
from unstuck.trials.replay.journal import WriteJournal
from unstuck.trials.replay.sandbox import CannotReplayError, sandbox


def no_backward(*_: Any, **__: Any) -> None:
    return None


class Slotted:
    __slots__ = ("count", "items")

    def __init__(self) -> None:
        self.count = 1
        self.items = [1]


class Plain:
    total = 0

    def __init__(self) -> None:
        self.history = [1, 2]
        self.inner = Slotted()


def test_containers_and_attributes_come_back_in_the_same_objects() -> None:
    items, table, unique, queue = [1, [2]], {"a": [1]}, {1, 2}, deque([1, 2], maxlen=3)
    ordered = OrderedDict(a=1, b=2)
    array, plain = np.arange(4.0), Plain()
    snapshot = HeapSnapshot([{"all": (items, table, unique, queue, ordered, array, plain)}], lambda iterator: iterator)
    items[1].append(3)  # type: ignore[union-attr]
    items.append(4)
    table["a"].append(2)
    table["b"] = []
    unique.clear()
    queue.append(9)
    queue.append(10)
    ordered.move_to_end("a")
    array += 1
    plain.history.clear()
    plain.new = 5  # type: ignore[attr-defined]
    plain.inner.count += 1
    plain.inner.items = []
    inner = items[1]
    snapshot.restore()
    assert items == [1, [2]] and items[1] is inner
    assert table == {"a": [1]} and unique == {1, 2} and list(queue) == [1, 2]
    assert list(ordered) == ["a", "b"]
    assert array.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert plain.history == [1, 2] and not hasattr(plain, "new")
    assert plain.inner.count == 1 and plain.inner.items == [1]


def test_objects_that_refuse_to_be_looked_at_are_left_alone() -> None:
    class Nasty:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("touched")

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("compared")

        def __bool__(self) -> bool:
            raise RuntimeError("asked")

        __hash__ = None  # type: ignore[assignment]

    nasty = Nasty()
    items = [nasty, 1]
    snapshot = HeapSnapshot([items, nasty], lambda iterator: iterator)
    items.pop()
    snapshot.restore()
    assert items[0] is nasty and items[1] == 1


def test_writes_to_known_tensors_are_undone_with_their_versions() -> None:
    base = torch.arange(6.0)
    view, other = base[2:4], torch.ones(2)
    versions = base._version, other._version
    journal = WriteJournal([base, other])
    with journal:
        view.mul_(10)
        torch.add(view, 1, out=other)
        base[0] = 5
        torch.zeros(3).add_(1)  # not known: nothing to undo
    assert base.tolist() == [5.0, 1.0, 20.0, 30.0, 4.0, 5.0]
    journal.restore()
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] and other.tolist() == [1.0, 1.0]
    assert (base._version, other._version) == versions


def test_training_in_the_sandbox_leaves_no_trace() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1)
    )
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(8, 3)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    log: list[float] = []
    namespace = {"model": model, "log": log, "x": x}
    before = {key: value.clone() for key, value in model.state_dict().items()}
    gradients = [parameter.grad for parameter in model.parameters()]
    values = [gradient.clone() for gradient in gradients if gradient is not None]
    start = rng.capture()
    torch.rand(3), random.random(), np.random.rand()
    now = rng.capture()
    with sandbox([namespace], [optimizer], start, no_backward):
        first = torch.rand(1)
        optimizer.zero_grad()
        loss = model(x).mean()
        log.append(loss.item())
        torch.autograd.grad(loss, list(model.parameters()))
        x.add_(1)
        optimizer.step()
        print("never seen")  # noqa: T201 - that it isn't seen is the point
    again = rng.capture()
    assert torch.equal(again.torch_cpu, now.torch_cpu)
    assert (again.numpy, again.python) == (now.numpy, now.python)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [parameter.grad for parameter in model.parameters()] == gradients
    assert all(torch.equal(a, b) for a, b in zip((g for g in gradients if g is not None), values, strict=True))
    assert log == []
    rng.restore(start)
    assert torch.equal(torch.rand(1), first)
    assert type(optimizer).step is not None and "step" not in vars(optimizer)


def test_what_cannot_be_undone_is_refused(tmp_path: Path) -> None:
    loader = iter(DataLoader(torch.arange(4), batch_size=2))
    with pytest.raises(CannotReplayError, match="draws a batch"), sandbox([], [], rng.capture(), no_backward):
        next(loader)
    with sandbox([], [], rng.capture(), no_backward), open(tmp_path / "log.txt", "w") as file:
        file.write("into memory that nobody reads")
    assert next(loader).tolist() == [0, 1]
    assert not (tmp_path / "log.txt").exists()


def test_an_open_file_is_cut_back(tmp_path: Path) -> None:
    with open(tmp_path / "log.txt", "w") as file:
        file.write("before\n")
        with sandbox([{"file": file}], [], rng.capture(), no_backward):
            file.write("inside\n")
        file.write("after\n")
    assert (tmp_path / "log.txt").read_text() == "before\nafter\n"


def test_an_exception_inside_is_undone_too() -> None:
    items = [1]

    def failing() -> None:
        with sandbox([items], [], rng.capture(), no_backward):
            items.append(2)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        failing()
    assert items == [1]
    assert torch.autograd.backward is not no_backward
