"""Keeps the moments of the present step from which it could be run again: where the program was, and with what.

A *moment* is taken when a batch is drawn, when the first module is called and when an optimiser step has ended. It
holds the call chain, references to the few values that the rest of the pass will read, and the random states; no
copies. All of it is replaced by the next step's.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import UserDict, deque
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, MappingProxyType, ModuleType
from typing import Any, NamedTuple

import torch

from unstuck.instruments.drawn_indices import DrawnIndices
from unstuck.measure import rng
from unstuck.places import is_user_file
from unstuck.program.attributes import own_attributes
from unstuck.program.continuation import can_pass_again, continue_from, loop_names, names_needed, receives_item

__all__ = ["Draw", "FrameMoment", "Moment", "Moments", "frame_marks"]

_DEPTH = 6
"""User frames whose values are kept, counted from the innermost."""

_THOROUGH_STEPS = 32
"""First steps in which every moment is taken, whatever the loop looks like."""

_LONG = 4e-3
"""Seconds of a step beside which one moment more costs next to nothing."""

_LOOPS_OF_OTHERS = (
    *("unstuck.trainer", "unstuck.workflow", "unstuck.tuner", "unstuck.testing"),
    *("lightning.pytorch.trainer", "pytorch_lightning.trainer", "transformers.trainer"),
)
"""Modules whose functions hold a whole training loop: what called them can't be continued from within a step."""

_SCHEDULES = torch.optim.lr_scheduler.__file__

_RESCAN = 1024
"""Moments after which the program's namespaces are searched again for random generators."""


class FrameMoment(NamedTuple):
    """One frame of a call chain: ``ident`` is its identity while it runs, ``lasti`` the instruction that it was in.

    ``values`` are the names that its continuation needs; None for frames that aren't the user's.
    """

    ident: int
    code: CodeType
    lasti: int
    values: Mapping[str, Any] | None
    namespace: dict[str, Any]


class Moment(NamedTuple):
    """A point from which the program can be continued.

    Attributes:
        kind: ``forward``, ``draw``, ``step``, or ``call`` where the program's own function can be called again.
        frames: the call chain, innermost first.
        random_state: taken at that point; None where the first module call's serves.
        module, args, kwargs: of the call, for ``forward``.
        direct: the innermost frame called the module itself, with nothing of a library between.
        autocast: devices on which the call was under autocast, with the number format.
        batch, position: the batch and how many the loader had given before, for ``draw``.
        call: what to call again, for ``call``.
    """

    kind: str
    frames: tuple[FrameMoment, ...]
    random_state: rng.RandomState | None
    module: torch.nn.Module | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = MappingProxyType({})
    direct: bool = False
    batch: Any = None
    position: int = 0
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    call: Callable[[], Any] | None = None


class Draw(NamedTuple):
    """A batch as a loader gave it.

    Attributes:
        position: batches that its iteration had given before.
        batch: with its entries as they were then.
        given: the object that the program got.
        indices: the dataset's indices of its samples, None where they aren't known.
    """

    position: int
    batch: Any
    given: Any
    indices: list[int] | None = None


_CALL_CODES = {
    torch.nn.Module._wrapped_call_impl.__code__,
    torch.nn.Module._call_impl.__code__,
    *(item for item in torch.nn.Module._call_impl.__code__.co_consts if isinstance(item, CodeType)),
}


def frame_marks(frame: FrameType | None, limit: int = 400) -> tuple[tuple[int, CodeType, int], ...]:
    """(identity, code, instruction) of a frame and everything around it, innermost first."""
    marks: list[tuple[int, CodeType, int]] = []
    while frame is not None and len(marks) < limit:
        code = frame.f_code
        marks.append((id(frame), code, frame.f_lasti))
        if code.co_name == "<module>" and is_user_file(code.co_filename):
            break
        frame = frame.f_back
    return tuple(marks)


class Moments:
    """The instrument. ``forward``, ``draw``, ``step``: the present moments; ``draws``: the batches of this step."""

    name = "moments"

    def __init__(self) -> None:
        self.forward: Moment | None = None
        self.draw: Moment | None = None
        self.step: Moment | None = None
        self.draws: deque[Draw] = deque(maxlen=8)
        self._passes = 0
        self._passes_at = {"forward": 0, "draw": 0, "step": 0}
        self._generators: tuple[Any, ...] = ()
        self._states = rng.StateWatch()
        self._drawn = DrawnIndices()
        self._taken = 0
        self._counts: dict[int, int] = {}
        self._stepped = False
        self._optimizers: set[int] = set()
        self._draw_continues = False
        self._closures = False
        self._steps = 0
        self._passes_again = False
        self._accumulates = False
        self._backward_place: tuple[CodeType, int] | None = None
        self._place: tuple[int, int] | None = None
        self._place_frames: tuple[FrameMoment, ...] = ()
        self._thread: int | None = None  # the one that trains
        self._drawn_by: int | None = None
        self._long = True
        self._stepped_at = 0.0

    @property
    def wants_calls(self) -> bool:
        """Whether the first module call of a pass is needed: not where the loop's passes can be run again whole."""
        return not self._passes_again

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._follow()
        if self.step is None:
            self.step = Moment("step", _loop_frames(frame), self._states.present(self._generators))

    def epoch_begins(self, iterator: Any, loader: Any) -> None:
        self._counts[id(iterator)] = 0

    def indices_drawn(self, iterator: Any, indices: Any) -> None:
        self._drawn.note(iterator, indices)

    def batch_drawn(self, iterator: Any, batch: Any, frame: FrameType) -> None:
        indices = self._drawn.take(iterator)
        position = self._counts.get(id(iterator), 0)
        self._counts[id(iterator)] = position + 1
        if self._elsewhere():
            return  # fetched ahead; which of these a step works on can't be told
        if self._stepped:
            self._stepped = False
            self.draws.clear()
        kept = _kept(batch)
        self.draws.append(Draw(position, kept, batch, indices))
        self._drawn_by = threading.get_ident()
        self._draw_continues = _continues(frame)
        self._take("draw", frame, batch=kept, position=position)

    def note(self, source: int, batch: Any) -> None:
        """A batch that the program itself tells; one that a loader has just given is known already."""
        if self._stepped:
            self._stepped = False
            self.draws.clear()
        index = self._counts.get(source, 0)
        self._counts[source] = index + 1
        if not any(draw.given is batch for draw in self.draws):
            self.draws.append(Draw(index, _kept(batch), batch))

    def forward_begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any, frame: FrameType) -> None:
        if self._elsewhere():
            return
        if self._passes_again:
            self.forward = None
            return  # the end of the last step is a moment that holds all of this one
        if self._simple() and not self._long and not self.passes_since("draw"):
            self.forward = None
            return  # the draw of the batch is a moment that holds all of this step
        caller: FrameType | None = frame
        while caller is not None and caller.f_code in _CALL_CODES:
            caller = caller.f_back
        direct = caller is not None and is_user_file(caller.f_code.co_filename)
        self._take(
            "forward", caller, module=module, args=args, kwargs=kwargs, direct=direct, autocast=_autocast_devices()
        )

    def backward_begins(self, tensors: Any, frame: FrameType) -> None:
        self._follow()
        caller = frame.f_back
        if caller is not None and not self._accumulates:
            place = (caller.f_code, caller.f_lasti)
            if self._passes_at["step"] < self._passes and place == self._backward_place:
                # a pass of the loop isn't a whole step
                self._accumulates, self._passes_again = True, False
            self._backward_place = place
        self._passes += 1

    def passes_since(self, kind: str) -> int:
        """Backward calls that were told since the moment of this kind was taken."""
        return self._passes - self._passes_at[kind]

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        # A batch may serve several optimisers in turn: it is let go when the next one is drawn.
        called, self.forward = self.forward is not None, None
        self._stepped = True
        self._optimizers.add(id(optimizer))
        self._passes_at["step"] = self._passes
        self._steps += 1
        now = time.perf_counter()
        self._long = self._steps < _THOROUGH_STEPS or now - self._stepped_at > _LONG
        self._stepped_at = now
        if self._simple():
            self.step = None
            return  # the next step begins with the draw of its batch
        if self._is_same_place(frame):
            # the usual case, and in short steps every microsecond of it counts
            self.step = Moment("step", self._place_frames, self._states.present(self._generators))
            return
        self._passes_again = (
            self._steps >= _THOROUGH_STEPS
            and len(self._optimizers) == 1
            and not self._closures
            and not self._accumulates
            and _steps_in_its_loop(frame)
        )
        # where modules are called, the random states are taken at the first call
        taken_there = called and not self._passes_again
        frames = _loop_frames(frame)
        self.step = Moment("step", frames, None if taken_there else self._states.present(self._generators))
        self._remember_place(frame, frames)

    def _is_same_place(self, frame: FrameType) -> bool:
        """Whether a step was made where the last one was, in a loop that hands nothing on."""
        place = _caller(frame)
        return (
            self._passes_again
            and len(self._optimizers) == 1
            and place is not None
            and self._place == (id(place), place.f_lasti)
            and self._place_frames[0].code is place.f_code
        )

    def _remember_place(self, frame: FrameType, frames: tuple[FrameMoment, ...]) -> None:
        place = _caller(frame)
        own = place is not None and len(frames) == 1 and frames[0].ident == id(place) and not frames[0].values
        self._place = (id(place), frames[0].lasti) if own else None
        self._place_frames = frames

    def closure_met(self) -> None:
        """A step is about to call a closure, in which whole passes may be made."""
        self._closures = True

    def _follow(self) -> None:
        """The thread that is running now is the one that trains."""
        if self._thread != (here := threading.get_ident()):
            self._thread = here
            if self._drawn_by not in (None, here):
                self.draw = None
                self.draws.clear()

    def _elsewhere(self) -> bool:
        return self._thread is not None and self._thread != threading.get_ident()

    def _simple(self) -> bool:
        """Whether one optimiser steps once per drawn batch, so that the draw is all the moment that a step needs."""
        return self._draw_continues and len(self._optimizers) == 1 and not self._closures

    def run_ends(self) -> None:
        self.forward = self.draw = self.step = None
        self.draws.clear()

    def _take(self, kind: str, frame: FrameType | None, **more: Any) -> None:
        # often at first, when the program is still making its objects
        if self._taken % _RESCAN == 0 or self._taken & (self._taken - 1) == 0:
            self._generators = tuple(_find_generators(frame))
        self._taken += 1
        setattr(self, kind, Moment(kind, _chain(frame), self._states.present(self._generators), **more))
        self._passes_at[kind] = self._passes


def _caller(frame: FrameType) -> FrameType | None:
    """What has called ``step``, beyond what a learning-rate schedule has wrapped around it."""
    place = frame.f_back
    if place is not None and place.f_code.co_filename == _SCHEDULES:
        place = place.f_back
    return place


def _autocast_devices() -> tuple[tuple[str, torch.dtype], ...]:
    if not torch._C._is_any_autocast_enabled():
        return ()
    devices = [device for device in ("cpu", "cuda", "mps") if torch.is_autocast_enabled(device)]
    return tuple((device, torch.get_autocast_dtype(device)) for device in devices)


def _kept(batch: Any) -> Any:
    """The batch with its entries as they are now: a loop may take some out (``labels = batch.pop("labels")``)."""
    if not isinstance(batch, (dict, list, UserDict)):
        return batch
    try:
        return copy.copy(batch)
    except Exception:  # noqa: BLE001 - a class of the program's may not like to be copied
        return batch


def _continues(frame: FrameType) -> bool:
    """Whether a program can be continued from where ``frame`` draws a batch."""
    code = frame.f_code
    return is_user_file(code.co_filename) and bool(_cached(_is_continuable, code, frame.f_lasti))


def _steps_in_its_loop(frame: FrameType | None) -> bool:
    """Whether the frame that called ``step`` is the user's, in a loop whose pass can be run again as it stands."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        if _is_whole_training(frame):
            return False
        frame = frame.f_back
    return frame is not None and bool(_cached(can_pass_again, frame.f_code, frame.f_lasti))


def _is_continuable(code: CodeType, lasti: int) -> bool:
    return receives_item(code, lasti) and continue_from(code, lasti) is not None


_static: dict[tuple[Callable[..., Any], int, int], tuple[CodeType, Any]] = {}


def _cached(analysis: Callable[[CodeType, int], Any], code: CodeType, lasti: int) -> Any:
    """What a static analysis says of a place. By identity: the hash of a code object takes longer than all of this."""
    key = (analysis, id(code), lasti)
    known = _static.get(key)
    if known is None:
        known = _static[key] = (code, analysis(code, lasti))
    return known[1]


def _chain(frame: FrameType | None) -> tuple[FrameMoment, ...]:
    """The call chain from ``frame`` to the program's outermost frame, with the values of the innermost user frames."""
    chain = []
    kept = 0
    while frame is not None:
        code = frame.f_code
        values = None
        user = is_user_file(code.co_filename)
        if user and kept < _DEPTH:
            kept += 1
            values = _values(frame, code)
        elif not user and _is_whole_training(frame):
            kept = _DEPTH
        chain.append(FrameMoment(id(frame), code, frame.f_lasti, values, frame.f_globals))
        if user and code.co_name == "<module>":
            break  # what is outside runs the program and isn't part of it
        frame = frame.f_back
    return tuple(chain)


def _values(frame: FrameType, code: CodeType) -> dict[str, Any]:
    near, far = _cached(names_needed, code, frame.f_lasti)
    local = frame.f_locals
    values = {name: local[name] for name in near if name in local}
    for name in far:
        # What only a second run of a whole loop would read isn't worth keeping a graph alive for.
        if name in local:
            value = local[name]
            if not (isinstance(value, torch.Tensor) and value.grad_fn is not None):
                values[name] = value
    return values


def _loop_frames(frame: FrameType | None) -> tuple[FrameMoment, ...]:
    """The innermost user frame that is in a loop, with what that loop hands from one pass to the next."""
    while frame is not None:
        code = frame.f_code
        if is_user_file(code.co_filename):
            names = _cached(loop_names, code, frame.f_lasti)
            if names is not None:
                values = {}
                if names:
                    local = frame.f_locals
                    values = {name: local[name] for name in names if name in local}
                return (FrameMoment(id(frame), code, frame.f_lasti, values, frame.f_globals),)
            if code.co_name == "<module>":
                break
        elif _is_whole_training(frame):
            break
        frame = frame.f_back
    return ()


def _is_whole_training(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_LOOPS_OF_OTHERS)


def _find_generators(frame: FrameType | None) -> list[Any]:
    """Random generators in the namespaces of the user's frames and in the attributes of objects found there."""
    found: dict[int, Any] = {}
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            for namespace in (frame.f_locals, frame.f_globals):
                for value in list(namespace.values()):
                    for candidate in (value, *_attributes(value)):
                        if rng.is_generator(candidate):
                            found[id(candidate)] = candidate
        frame = frame.f_back
    return list(found.values())


def _attributes(value: Any) -> list[Any]:
    """What an instance holds, without running any code of its class."""
    if isinstance(value, (type, ModuleType)):
        return []
    return list((own_attributes(value) or {}).values())
