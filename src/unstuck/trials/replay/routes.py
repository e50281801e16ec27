"""From where a step can be run again: the moments that were kept, turned into something to call.

A *route* leads from a moment to the backward call. From a module call: call the module on the arguments that it got and
continue the frames around it, one after the other, up to the frame that also leads to ``backward`` (or to the end of
the user's code, where a trainer calls ``backward`` on what the user's function returned). From the draw of a batch or
the start of a pass: continue the frame that did it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any

import torch

from unstuck.instruments.guard import Backward
from unstuck.instruments.moments import FrameMoment, Moment
from unstuck.measure.rng import RandomState
from unstuck.places import Frame, is_user_file
from unstuck.program.continuation import (
    Continuation,
    call_position,
    continue_from,
    receives_item,
    takes_position,
    target_names,
    whole_pass,
    written_by_now,
)

__all__ = ["Route", "lines_at", "routes_to", "user_lines", "with_callers"]


@dataclass(frozen=True)
class Stage:
    """The rest of one frame; ``takes_value``: it uses the result of the call that it was in."""

    run: Callable[[Any], Any]
    takes_value: bool


@dataclass(frozen=True)
class Route:
    """One way to run the step again.

    Attributes:
        moment: where it begins.
        random_state: at that point.
        target: which of the backward calls that it meets is the wanted one, counted from 1.
        first: makes the value that the first stage takes.
        stages: continuations of frames, innermost first; each takes what the one before returned.
        roots: what the code may reach and change.
        name: for messages.
        autocast: to be entered around all of it.
        items: what the loop whose pass is run again has been given, by name.
    """

    moment: Moment
    random_state: RandomState
    target: int
    first: Callable[[], Any]
    stages: tuple[Stage, ...]
    roots: tuple[Any, ...]
    name: str
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    items: Mapping[str, Any] = field(default_factory=dict)


def routes_to(backward: Backward, frame: FrameType | None) -> Iterator[Route]:
    """The routes to a backward call, the most exact first.

    Args:
        backward: the call.
        frame: innermost frame at present; frames that still run lend their present values.
    """
    states = [moment.random_state for moment, _ in backward.moments if moment.random_state is not None]
    for moment, target in backward.moments:
        state = moment.random_state or next(iter(states), None)
        if state is None:
            continue
        if moment.kind == "forward":
            for route in _from_forward(moment, state, target, backward):
                yield route
                if moment.autocast:  # entered by the route's own `with`, or by whoever called the user's code
                    yield replace(route, autocast=moment.autocast, name=f"{route.name}, under autocast")
        elif moment.kind == "draw":
            yield from _from_draw(moment, state, target, backward)
        elif moment.kind == "call":
            assert moment.call is not None
            roots = _roots(moment, moment.module, moment.args)
            yield Route(moment, state, target, moment.call, (), roots, "the step's own method")
        else:
            yield from _from_pass(moment, state, target, backward, frame)


def _from_forward(moment: Moment, state: RandomState, target: int, backward: Backward) -> Iterator[Route]:
    module, args, kwargs = moment.module, moment.args, dict(moment.kwargs)
    assert module is not None

    def call() -> Any:
        # a `with torch.autocast` around the call is not a part of what follows it
        with contextlib.ExitStack() as around:
            for device, dtype in moment.autocast:
                around.enter_context(torch.autocast(device, dtype=dtype))
            return module(*args, **kwargs)

    if moment.direct:
        stages = _stages(moment.frames, backward)
        if stages is not None:
            first = call if stages[0].takes_value else _nothing
            yield Route(
                moment, state, target, first, stages, _roots(moment, module, args, kwargs), "from the first module call"
            )
    # a library called the module, or the call can't be told from its surroundings: run the user's statement again
    user = _user_frames(moment)
    if user:
        stages = _stages(user, backward, substitute_first=False)
        if stages is not None:
            yield Route(
                moment, state, target, _nothing, stages, _roots(moment, module), "from the statement of the first call"
            )
    yield Route(moment, state, target, call, (), _roots(moment, module, args, kwargs), "the module call alone")


def _from_draw(moment: Moment, state: RandomState, target: int, backward: Backward) -> Iterator[Route]:
    user = _user_frames(moment)
    if user and user[0] is moment.frames[0] and receives_item(user[0].code, user[0].lasti):
        stages = _stages(user, backward)
        if stages is not None:
            value = (moment.position, moment.batch) if takes_position(user[0].code, user[0].lasti) else moment.batch
            yield Route(
                moment, state, target, lambda: value, stages, _roots(moment, moment.batch), "from the draw of the batch"
            )


def _from_pass(
    moment: Moment, state: RandomState, target: int, backward: Backward, frame: FrameType | None
) -> Iterator[Route]:
    running = _running(frame)
    for mark in _user_frames(moment):
        present = running.get((mark.ident, mark.code))
        if present is None or (mark.ident, mark.code) not in {(ident, code) for ident, code, _ in backward.marks}:
            continue
        continuation = whole_pass(mark.code, mark.lasti)
        if continuation is None:
            continue
        # what this pass has written itself comes from the moment; everything else is as it is now: what a pass writes
        # behind its step (a counter) has been written since
        values = {name: present.f_locals[name] for name in continuation.names if name in present.f_locals}
        written = written_by_now(mark.code, present.f_lasti)
        values.update({name: value for name, value in (mark.values or {}).items() if name in written})
        stage = Stage(continuation.bind(values, mark.namespace), False)
        items = {name: values[name] for name in target_names(mark.code, mark.lasti) if name in values}
        roots = (values, mark.namespace)
        yield Route(moment, state, target, _nothing, (stage,), roots, "from the start of the pass", items=items)
        return


def _stages(
    frames: tuple[FrameMoment, ...], backward: Backward, substitute_first: bool = True
) -> tuple[Stage, ...] | None:
    """Continuations of consecutive user frames up to the one that leads to the backward call, or to their end."""
    meeting = {(ident, code): lasti for ident, code, lasti in backward.marks}
    stages: list[Stage] = []
    for frame in frames:
        if frame.values is None:
            break  # a library's frame: what the user's function returned is looked at
        stop_at = meeting.get((frame.ident, frame.code))
        wants = substitute_first or bool(stages)
        continuation = _continuation(frame.code, frame.lasti, wants, stop_at)
        if continuation is None:
            return None
        if stages and not continuation.substitutes:
            stages.clear()  # a loop around the call runs again whole, and makes the inner frames itself
        stages.append(Stage(continuation.bind(frame.values, frame.namespace), continuation.substitutes))
        if stop_at is not None:
            return tuple(stages)
    return tuple(stages) or None


def _continuation(code: CodeType, lasti: int, substitute: bool, stop_at: int | None) -> Continuation | None:
    found = continue_from(code, lasti, substitute=substitute, stop_at=stop_at)
    if found is None and substitute:
        found = continue_from(code, lasti, substitute=False, stop_at=stop_at)
    return found


def _user_frames(moment: Moment) -> tuple[FrameMoment, ...]:
    """The innermost run of consecutive user frames."""
    frames = list(moment.frames)
    while frames and frames[0].values is None:
        frames.pop(0)
    count = next((index for index, frame in enumerate(frames) if frame.values is None), len(frames))
    return tuple(frames[:count])


def _running(frame: FrameType | None) -> dict[tuple[int, CodeType], FrameType]:
    found = {}
    while frame is not None:
        found[id(frame), frame.f_code] = frame
        frame = frame.f_back
    return found


def _roots(moment: Moment, *more: Any) -> tuple[Any, ...]:
    own = [frame for frame in moment.frames if frame.values is not None]
    return (*more, *(frame.values for frame in own), *(frame.namespace for frame in own))


def with_callers(chain: tuple[Frame, ...], moment: Moment) -> tuple[Frame, ...]:
    """A call chain of a replay, preceded by the user's frames that stood around the moment from which it began."""
    around = user_lines(moment)
    if not chain:
        return around
    first = chain[0]
    for index, frame in enumerate(around):
        if (frame.file, frame.function) == (first.file, first.function):
            return (*around[:index], *chain)
    return (*around, *chain) if moment.module is not None else chain


def user_lines(moment: Moment | None) -> tuple[Frame, ...]:
    """The user's lines at a moment, outermost first."""
    return lines_at((item.code, item.lasti) for item in (moment.frames if moment is not None else ()))


def lines_at(places: Iterable[tuple[CodeType, int]]) -> tuple[Frame, ...]:
    """The user's lines at (code, instruction) of a call chain, which is given innermost first; outermost first."""
    lines = []
    for code, lasti in places:
        position = call_position(code, lasti)
        if is_user_file(code.co_filename) and position is not None:
            lines.append(Frame(code.co_filename, position.line, getattr(code, "co_qualname", code.co_name)))
    return tuple(reversed(lines))


def _nothing() -> None:
    return None
