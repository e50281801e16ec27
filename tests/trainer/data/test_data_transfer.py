"""Moving batches. The device "meta" stands in for an accelerator: tensors really have to move there."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, deque
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from unstuck.trainer.data.transfer import move_data_to_device

CPU, META = torch.device("cpu"), torch.device("meta")


class Point(NamedTuple):
    x: Tensor
    label: str


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Tensor
    note: str
    y: Tensor = dataclasses.field(init=False, default_factory=lambda: torch.ones(1))


@dataclasses.dataclass
class Slotted:
    __slots__ = ("x",)
    x: Tensor


class Own:
    """An object that moves itself."""

    def __init__(self) -> None:
        self.device: Any = None

    def to(self, device: Any) -> Own:
        moved = Own()
        moved.device = device
        return moved


class InPlace(Own):
    def to(self, device: Any) -> Any:
        self.device = device


class Tensors(list[Any]):
    """A list with an attribute."""

    note = ""


def test_plain_structures_move() -> None:
    x = torch.ones(2)
    batch = {"a": [x, 1, "text", None], "b": (x, {"c": x}), "d": b"raw"}
    moved = move_data_to_device(batch, META)
    assert moved["a"][0].device == META
    assert moved["a"][1:] == [1, "text", None]
    assert moved["b"][0].device == META
    assert moved["b"][1]["c"].device == META
    assert moved["d"] == b"raw"
    assert type(moved["b"]) is tuple
    assert batch["a"][0] is x  # the batch itself is left alone


def test_a_device_may_be_a_text() -> None:
    assert move_data_to_device(torch.ones(2), "meta").device == META


@pytest.mark.parametrize(
    "batch",
    [
        torch.ones(2),
        [torch.ones(2), {"a": (torch.ones(1), 3)}],
        Point(torch.ones(1), "x"),
        Frozen(torch.ones(1), "x"),
        OrderedDict(a=torch.ones(1)),
        UserDict(a=torch.ones(1)),
        np.ones(3),
        {1, 2},
        range(10**12),
        object(),
        torch.Tensor,
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_nothing_is_made_anew_where_nothing_moves(batch: Any) -> None:
    assert move_data_to_device(batch, CPU) is batch


def test_named_tuples_and_dataclasses_keep_their_type() -> None:
    point = move_data_to_device(Point(torch.ones(1), "a"), META)
    assert type(point) is Point
    assert point.x.device == META
    assert point.label == "a"
    frozen = Frozen(torch.ones(1), "note")
    moved = move_data_to_device(frozen, META)
    assert type(moved) is Frozen
    assert moved.x.device == moved.y.device == META
    assert moved.note == "note"
    assert frozen.x.device == CPU
    slotted = move_data_to_device(Slotted(torch.ones(1)), META)
    assert slotted.x.device == META


def test_containers_keep_their_type_and_attributes() -> None:
    x = torch.ones(1)
    default = move_data_to_device(defaultdict(list, a=x), META)
    assert default["new"] == []
    assert default["a"].device == META
    assert move_data_to_device(UserDict(a=x), META)["a"].device == META
    assert move_data_to_device(MappingProxyType({"a": x, "b": 1}), META)["a"].device == META
    queue = move_data_to_device(deque([x, x], maxlen=2), META)
    assert queue.maxlen == 2
    assert queue[1].device == META
    own = Tensors([x])
    own.note = "kept"
    moved = move_data_to_device(own, META)
    assert type(moved) is Tensors
    assert moved.note == "kept"
    assert moved[0].device == META


def test_objects_that_move_themselves() -> None:
    batch = [Own(), InPlace()]
    moved = move_data_to_device(batch, CPU)
    assert moved[0].device == CPU
    assert batch[0].device is None
    assert moved[1] is batch[1]
    assert moved[1].device == CPU


def test_tensor_subclasses_and_packed_sequences() -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    assert move_data_to_device(parameter, META).device == META
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    moved = move_data_to_device(packed, META)
    assert isinstance(moved, PackedSequence)
    assert moved.data.device == META


def test_copies_are_asynchronous_to_cuda_only() -> None:
    class Spy(Tensor):
        def to(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
            calls.append((args, kwargs))
            return self

    calls: list[Any] = []
    spy = torch.ones(1).as_subclass(Spy)
    move_data_to_device(spy, torch.device("cuda", 0))
    move_data_to_device(spy, CPU)
    assert calls == [((torch.device("cuda", 0),), {"non_blocking": True}), ((CPU,), {})]
