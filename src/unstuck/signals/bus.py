"""Signals and their way to the instruments.

A *source* calls one attribute of the bus per signal (``bus.backward_begins(tensors)``); an *instrument* defines methods
of the same names. Which instrument listens to what is computed once, so that a signal nobody wants costs one call of an
empty function. An instrument that raises is switched off and reported: the user's run goes on.

In short steps the calls themselves are what watching costs. An instrument that measures now and then therefore rests
in between (:class:`Rest`): for so many steps the bus doesn't call it at all.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FrameType
from typing import Any, Protocol

__all__ = ["SIGNALS", "Bus", "Listener", "Rest"]

SIGNALS: dict[str, str] = {
    "module_created": "(module, frame): torch.nn.Module.__init__ ran",
    "parameter_registered": "(parameter, frame): a module got a parameter",
    "tensor_filled": "(tensor, frame): a function of torch.nn.init filled a tensor",
    "state_loaded": "(module, names, frame): the entries with these names were loaded into a module",
    "parameter_copied": "(parameter, copy): a parameter was copied deeply",
    "mode_set": "(module, mode, frame): train or eval was called on a module",
    "gradients_switched": "(module, on, frame): requires_grad_ was called on a module",
    "optimizer_created": "(optimizer, frame): an optimiser was constructed",
    "loader_created": "(loader, frame): a loader was constructed",
    "epoch_begins": "(iterator, loader): a loader starts to be iterated",
    "indices_drawn": "(iterator, indices): a loader's sampler told which samples are in a batch to come",
    "batch_drawn": "(iterator, batch, frame): a loader gave a batch",
    "forward_begins": "(module, args, kwargs, frame): the first module call of a pass that may be differentiated",
    "module_evaluated": "(module, args, frame): a module was called without recording gradients, if that is wanted",
    "backward_begins": "(tensors, frame): gradients of tensors are about to be computed",
    "backward_ended": "(tensors): gradients have been accumulated",
    "gradients_taken": "(outputs): torch.autograd.grad was called",
    "gradients_zeroed": "(owner): an optimiser or module cleared its gradients",
    "clip_begins": "(parameters, kind, limit, frame): a torch clipping function is about to run",
    "gradients_clipped": "(parameters, kind, limit, norm): a torch clipping function ran",
    "loss_scaled": "(scaler, frame): a loss scaler multiplied a loss by its scale",
    "gradients_unscaled": "(scaler, optimizer): a loss scaler divided the gradients by its scale",
    "scaler_step_begins": "(scaler, optimizer, frame): a loss scaler is about to take or skip a step",
    "scaler_stepped": "(scaler, optimizer): a loss scaler took or skipped a step",
    "scaler_updated": "(scaler): a loss scaler has adapted its scale",
    "step_begins": "(optimizer, closure, frame): an optimiser step is about to act",
    "closure_ended": "(optimizer, frame): a step's closure has returned, of gradients computed before the step",
    "step_ended": "(optimizer, frame): it has acted",
    "schedule_created": "(scheduler, frame): a learning-rate schedule was constructed",
    "schedule_stepped": "(scheduler): a learning-rate schedule moved",
    "compile_begins": "(): torch.compile is about to be used",
    "run_ends": "(): nothing more will happen",
}
"""Every signal with its arguments; the first word in the brackets is a positional argument."""


class Rest:
    """An instrument's leave from signals that come in every step; the instrument has it as its attribute ``rest``.

    Args:
        signals: those that it can do without while it rests. All others reach it as ever.
        woken: called at the end of a rest, between two steps.

    Attributes:
        until: number of the step, as the bus counts them, at whose end the rest is over; 0 when there is none.
    """

    def __init__(self, signals: Iterable[str], woken: Callable[[], None] | None = None) -> None:
        self.signals = frozenset(signals)
        self.woken = woken
        self.until = 0
        self._bus: Bus | None = None

    @property
    def left(self) -> int:
        """Steps that are still to be left out, with the present one if it has begun."""
        return 0 if self._bus is None else max(0, self.until - self._bus.steps)

    def begin(self, steps: int | None = None) -> None:
        """Leave out so many steps from now on, with the present one if it has begun; None: all until :meth:`end`."""
        if self._bus is not None and (steps is None or steps > 0):
            self.until = sys.maxsize if steps is None else self._bus.steps + steps
            self._bus.rests_changed(self.signals)

    def end(self) -> None:
        """Listen again at once."""
        if self.until and self._bus is not None:
            self.until = 0
            self._bus.rests_changed(self.signals)

    def join(self, bus: Bus) -> None:
        """A bus counts the steps from now on."""
        self._bus = bus


class Listener(Protocol):
    """An instrument: any object with a ``name`` and methods called like signals.

    One that has something to undo should it be switched off has a method ``switched_off`` as well; one that needn't
    be told of every step has an attribute ``rest``, a :class:`Rest`.
    """

    name: str


Handler = Callable[..., None]


def _nothing(*_: Any) -> None:
    pass


_SENDERS: set[CodeType] = set()


def _sends(frame: FrameType | None) -> bool:
    """Whether a frame lies inside a signal on its way; asked only while one is, in this thread or in another."""
    while frame is not None:
        if frame.f_code in _SENDERS:
            return True
        frame = frame.f_back
    return False


class Bus:
    """Calls the instruments that listen to a signal, in the order in which they were given.

    Args:
        listeners: the instruments.
        passages: exceptions that an instrument raises on purpose: they reach the user's program (a stop).

    Attributes:
        seconds: time spent inside instruments so far: what watching cost.
        faults: (instrument's name, signal, error) of every instrument that raised and was switched off.
        muted: while True no signal reaches an instrument (a replay runs the user's code again).
        steps: optimiser steps that have ended.
    """

    def __init__(self, listeners: Iterable[Listener] = (), passages: tuple[type[BaseException], ...] = ()) -> None:
        self.listeners: list[Listener] = list(listeners)
        self.seconds = 0.0
        self.faults: list[tuple[str, str, str]] = []
        self.muted = False
        self.steps = 0
        self._passages = passages
        self._depth = 0  # instruments at work, in any thread
        self._rests: list[tuple[Listener, Rest]] = []
        self._alarm = sys.maxsize  # the step at whose end the next rest is over
        self._leaves: dict[str, list[tuple[Listener, Rest]]] = {}
        self._senders: dict[tuple[str, tuple[Rest, ...]], Handler] = {}
        self._connect()

    @property
    def busy(self) -> bool:
        """Whether an instrument is at work in this thread, so that what the program does is done for it (a replay)."""
        return bool(self._depth) and _sends(sys._getframe(1))

    @property
    def working(self) -> bool:
        """Whether an instrument is at work, in whatever thread."""
        return self._depth > 0

    def _connect(self) -> None:
        self._senders = {}
        rests = [(item, _rest_of(item)) for item in self.listeners]
        self._rests = [(item, rest) for item, rest in rests if rest is not None]
        for _, rest in self._rests:
            rest.join(self)
        self._leaves = {
            signal: [(item, rest) for item, rest in self._rests if signal in rest.signals] for signal in SIGNALS
        }
        self._route(SIGNALS)

    def _route(self, signals: Iterable[str]) -> None:
        """Choose who is called at each of the signals: all that listen to it and aren't at rest."""
        for signal in signals:
            leaves = self._leaves[signal]
            resting = tuple([rest for _, rest in leaves if rest.until])
            sender = self._senders.get((signal, resting))
            if sender is None:
                absent = [item for item, rest in leaves if rest.until]
                handlers = [
                    (item, getattr(item, signal))
                    for item in self.listeners
                    if hasattr(item, signal) and item not in absent
                ]
                counts = signal == "step_ended"
                sender = self._sender(signal, handlers, counts) if handlers or counts else _nothing
                self._senders[signal, resting] = sender
            setattr(self, signal, sender)

    def rests_changed(self, signals: Iterable[str]) -> None:
        """An instrument has begun to rest from these signals, or has ended it."""
        self._alarm = min([rest.until for _, rest in self._rests if rest.until], default=sys.maxsize)
        self._route(signals)

    def _wake(self) -> None:
        """Some rests are over."""
        over = [(item, rest) for item, rest in self._rests if 0 < rest.until <= self.steps]
        for _, rest in over:
            rest.until = 0
        self.rests_changed(frozenset().union(*[rest.signals for _, rest in over]))
        for listener, rest in over:
            if rest.woken is None:
                continue
            try:
                rest.woken()
            except Exception as error:  # noqa: BLE001 - a fault of ours must not reach the user's run
                self._switch_off(listener, "woken", error)

    def _sender(self, signal: str, handlers: Sequence[tuple[Listener, Handler]], counts: bool = False) -> Handler:
        clock = time.perf_counter
        frame_of = sys._getframe

        def send(*arguments: Any) -> None:
            if self.muted or (self._depth and _sends(frame_of(1))):
                return
            self._depth += 1
            begin = clock()
            if counts:
                self.steps += 1
            try:
                for listener, handler in handlers:
                    try:
                        handler(*arguments)
                    except self._passages:
                        raise
                    except Exception as error:  # noqa: BLE001 - a fault of ours must not reach the user's run
                        self._switch_off(listener, signal, error)
                if counts and self.steps >= self._alarm:
                    self._wake()
            finally:
                self._depth -= 1
                self.seconds += clock() - begin

        _SENDERS.add(send.__code__)
        return send

    def call(self, listener: Listener, handler: Handler, *arguments: Any) -> None:
        """Give one instrument something that is no signal: its time counts, and a fault switches it off."""
        if listener not in self.listeners:
            return
        begin = time.perf_counter()
        try:
            handler(*arguments)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not reach the user's run
            self._switch_off(listener, handler.__name__, error)
        finally:
            self.seconds += time.perf_counter() - begin

    def _switch_off(self, listener: Listener, signal: str, error: Exception) -> None:
        self.faults.append((listener.name, signal, f"{type(error).__name__}: {error}"))
        self.listeners = [item for item in self.listeners if item is not listener]
        self._connect()
        undo = getattr(listener, "switched_off", None)
        if undo is not None:
            with contextlib.suppress(Exception):
                undo()

    def __getattr__(self, name: str) -> Handler:
        # Only for the type checker: signals are set as attributes when the bus is built.
        raise AttributeError(name)


def _rest_of(listener: Any) -> Rest | None:
    rest = getattr(listener, "rest", None)
    return rest if isinstance(rest, Rest) else None
