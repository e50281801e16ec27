"""A session: sources and instruments connected, incidents explained, the recording judged.

Owns the order of things and nothing else: what is measured, tried, judged and drawn lives in its own layer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

import torch

from unstuck.errors import MisconfigurationException
from unstuck.instruments.batch_sizes import BatchSizesOfModels
from unstuck.instruments.batches import Batches
from unstuck.instruments.clipping import Clipping
from unstuck.instruments.connections import Connections
from unstuck.instruments.constructions import Constructions
from unstuck.instruments.gradients import Gradients
from unstuck.instruments.guard import Guard, Incident
from unstuck.instruments.inventory import Inventory
from unstuck.instruments.kept_steps import KeptSteps
from unstuck.instruments.losses import Losses
from unstuck.instruments.modes import Modes
from unstuck.instruments.moments import Moments
from unstuck.instruments.schedules import Schedules
from unstuck.instruments.skipped_steps import SkippedSteps
from unstuck.instruments.step_limit import StepLimit
from unstuck.instruments.step_order import StepOrder
from unstuck.instruments.underflow import Underflow
from unstuck.isolation import private_imports
from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy
from unstuck.record.incident import UnderflowRecord
from unstuck.record.recording import RECORDING_NAME, Recording
from unstuck.session.dropping import Dropping, DroppingEnds
from unstuck.session.explain import explain, explain_skipped_step, explain_zero_gradients
from unstuck.session.first_steps import FirstSteps
from unstuck.session.live_trace import LiveTrace
from unstuck.session.options import Ending, SessionOptions, Verdict
from unstuck.session.progress import Progress
from unstuck.session.restoring import Restoring
from unstuck.signals import Bus, Listener
from unstuck.sources.plain import PlainSource
from unstuck.sources.scope import ScopedBus
from unstuck.trials.dropping import listed

__all__ = ["Session", "StopRun", "active_session"]

INCIDENT_EXIT_CODE = 3


class StopRun(SystemExit):
    """Ends the user's program at an incident (exit code 3) or after a number of steps (exit code 0).

    A SystemExit: ``finally`` blocks and ``atexit`` handlers run, ``except Exception`` doesn't take it for an error.
    """


class Session:
    """One watched run of a plain PyTorch program in this process.

    Args:
        options: how to watch.
        models: watch only passes of these; all if none is given.
        optimizers: watch only steps of these; all, or all of the models' if models are given, if none is given.
    """

    _active: ClassVar[Session | None] = None
    _trials: ClassVar[int] = 0

    def __init__(
        self,
        options: SessionOptions,
        models: Iterable[torch.nn.Module] = (),
        optimizers: Iterable[torch.optim.Optimizer] = (),
    ) -> None:
        models, optimizers = list(models), list(optimizers)
        self.options = options
        path = None if options.out is None or options.trace_step is not None else options.out / RECORDING_NAME
        self.recording = Recording(path)
        self._moments = Moments()
        self._inventory = Inventory()
        drops = options.on_nonfinite == "skip-step" and options.trace_step is None
        self._guard = Guard(self._moments, self._on_incident, drops)
        clipping = Clipping(self.recording, self._guard)
        self._clipping = clipping
        self._gradients = gradients = Gradients(
            self.recording, self._guard, self._moments, self._inventory, clipping, options.every_gradient
        )
        self._live = None if options.trace_step is None else LiveTrace(options.trace_step, self._guard)
        limit = [] if options.steps is None else [StepLimit(options.steps, self._on_steps_done)]
        live: list[Listener] = [] if self._live is None else [self._live]
        losses = Losses(self.recording, self._guard, gradients.loss_jumped)
        self._batches = Batches(self.recording, self._guard)
        constructions = Constructions()
        self._first_steps = FirstSteps(
            self.recording,
            self._guard,
            constructions,
            compiles=lambda: self._source.compiles,
            quiet=lambda: self._bus.working or self._source.loading > 0,
        )
        self._first_steps.take(models, optimizers)
        self._connections = Connections(self.recording, self._guard, self._inventory, constructions)
        self._connections.take_models(models)
        self._modes = Modes(self.recording, self._guard, self._connections, constructions)
        self._order = StepOrder(self.recording, self._guard, self._connections)
        wiring: list[Listener] = [] if live else [self._connections, self._order, self._modes]
        self._kept_steps = KeptSteps(self._guard, self._moments, self._inventory)
        probed: list[Listener] = [] if live or options.budget <= 0.0 else [self._kept_steps]
        probed.append(Schedules(self.recording, self._guard, gradients.index_of))
        self._batch_sizes = BatchSizesOfModels(self.recording, self._guard)
        first: list[Listener] = [] if live else [self._first_steps, constructions, self._batch_sizes]
        last: list[Listener] = [] if live else [self._first_steps.afterwards]
        self._restoring = None
        if options.replay is not None:
            self._restoring = Restoring(options.replay, self._guard, self._live)
            live.insert(0, self._restoring)
        dropping: list[Listener] = []
        self._policy: Dropping | None = None
        if drops:
            stop = self._stop_at_incident
            self._policy = policy = Dropping(self._guard, self.recording, stop, options.decide_on_device)
            live.insert(0, DroppingEnds(policy, self.recording, stop))
            dropping.append(policy)
        half: list[Any] = []
        if options.trace_step is None:
            half.append(SkippedSteps(self._guard, self._on_skipped_step))
            half.append(Underflow(self._guard, self._moments, self._on_zero_gradients))
        # The tracer closes before the guard looks, the guard looks before its moments are replaced, and gradients are
        # measured before what was done to them counts as done.
        self._bus = Bus(
            [
                *live,
                *first,
                *half,
                self._guard,
                self._moments,
                self._inventory,
                gradients,
                clipping,
                losses,
                self._batches,
                *wiring,
                *probed,
                *limit,
                *dropping,
                *last,
            ],
            passages=(StopRun,),
        )
        self._guard.optimizers.update({id(item): item for item in optimizers})
        scoped = ScopedBus(self._bus, models, optimizers) if models or optimizers else self._bus
        self._source = PlainSource(
            scoped,
            compiled=any(_is_compiled(model) for model in models),
            wants_calls=self._wants_calls,
            wants_evaluations=lambda: self._modes.wants_evaluations,
            wants_closures=lambda: self._guard.has_window,
        )
        if self._restoring is not None:
            self._source.substitute = self._restoring.batch
        self._stopped: str | None = None
        # what a Trainer knows of its position (epoch, global step), while one runs, and what it trains
        self._describe: Callable[[], dict[str, Any]] = dict
        self._described: torch.nn.Module | None = None
        self._started_at = 0.0
        self._excluded = 0.0

    def start(self) -> None:
        """Begin to watch.

        Raises:
            MisconfigurationException: another session watches this process; one step would be told twice.
        """
        if Session._active is not None:
            raise MisconfigurationException(
                "this process is watched already (by `unstuck run`, or by an unstuck.watch that was not closed); "
                "close the other one first"
            )
        Session._active = self
        self._started_at = time.perf_counter()
        self._source.open()

    @classmethod
    @contextmanager
    def set_aside(cls) -> Iterator[None]:
        """A trial runs inside: neither the session of this process, if there is one, nor a Trainer's guard sees it.

        Another session may be started inside.
        """
        session, cls._active = cls._active, None
        cls._trials += 1
        muted = session is not None and session._bus.muted
        if session is not None:
            session._first_steps.suspend()
            session._bus.muted = True
        try:
            yield
        finally:
            cls._active = session
            cls._trials -= 1
            if session is not None:
                session._bus.muted = muted

    def finish(self, ending: Ending) -> Verdict:
        """Stop watching, leave torch as it was found, and judge.

        Args:
            ending: how the program ended.
        """
        elapsed = time.perf_counter() - self._started_at
        self._source.close()
        if Session._active is self:
            Session._active = None
        begin = time.perf_counter()
        self._bus.run_ends()
        self._excluded += time.perf_counter() - begin  # the program has ended: what is summed up now delays nothing
        self._probe(ending)
        self._note_unseen()
        self.recording.set_facts(self._facts())
        self.recording.set_gradients()
        self.recording.write_records()
        self.recording.close()
        return self._verdict(ending, elapsed)

    def so_far(self) -> Verdict:
        """What is known while the program goes on."""
        self._gradients.fetch()
        self._clipping.fetch()
        self._connections.fetch()
        self._order.fetch()
        self._modes.fetch()
        self._batches.fetch()
        self.recording.flush()
        return self._verdict(Ending("running"), time.perf_counter() - self._started_at)

    def take_gradient_norms(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], norms: Sequence[torch.Tensor]
    ) -> None:
        """Take norms of an optimiser's present gradients that the program has computed, instead of computing them.

        Args:
            optimizer: the optimiser.
            parameters: those of its parameters that have a gradient.
            norms: the 2-norms of their gradients, unscaled and before clipping; scalars.
        """
        if norms and not self._bus.muted:
            self._bus.call(self._gradients, self._gradients.take, optimizer, parameters, norms)

    def optimizer_place(self, optimizer: torch.optim.Optimizer) -> tuple[Frame, ...]:
        """The user's lines that constructed an optimiser; empty if that wasn't seen."""
        return self._inventory.made_at.get(optimizer, ())

    def take_batch(self, source: object, batch: Any) -> None:
        """A step of the user's loop works on ``batch``; told by the loop itself where no loader gives it."""
        self._moments.note(id(source), batch)

    @contextmanager
    def describing(self, model: torch.nn.Module, describe: Callable[[], dict[str, Any]]) -> Iterator[None]:
        """Inside, parameters are named as in a Trainer's model, and incidents are told with its position."""
        self._inventory.given.add(model)
        before = self._described, self._describe
        self._described, self._describe = model, describe
        try:
            yield
        finally:
            self._described, self._describe = before

    def _verdict(self, ending: Ending, elapsed: float) -> Verdict:
        # What is needed at the end only is imported then, so that a run begins sooner.
        with private_imports():
            from unstuck.diagnosis import judge
            from unstuck.diagnosis.incidents import all_incidents

        failed: list[str] = []
        findings = judge(self.recording, failed.append)
        cost = None
        if self._guard.passes and elapsed > 0.0:
            cost = max(0.0, self._bus.seconds + self._first_steps.seconds - self._excluded) / elapsed
        return Verdict(
            findings=tuple(findings),
            watched=self._watched(),
            unchecked=(
                *(f"{name} was switched off: {error}" for name, _, error in self._bus.faults),
                *failed,
                *self.recording.unchecked,
                *(() if self._restoring is None else self._restoring.left),
            ),
            cost=cost,
            stopped=self._stopped,
            ending="stopped" if self._stopped else ending.kind,
            incidents=tuple(item.folder for item in all_incidents(self.recording) if item.folder),
            rerun_step=self._rerun_step(),
        )

    def _note_unseen(self) -> None:
        with private_imports():
            from unstuck.diagnosis.coverage import unseen

        for phrase in unseen(self.recording.all(Anatomy)):
            self.recording.add_unchecked(phrase)

    def _probe(self, ending: Ending) -> None:
        """Try on copies what the run alone can't tell; not where somebody waits for the end."""
        self.recording.flush()
        if self.options.budget <= 0.0 or ending.kind in ("interrupt", "exception"):
            self._kept_steps.take()
            return
        with private_imports():
            from unstuck.session.probing import Probing

        progress = Progress(self.options.quiet)
        probing = Probing(
            self.recording,
            self._kept_steps,
            self._gradients.index_of,
            self._source.original_backward,
            self.options.budget,
            progress.tell,
        )
        probing.run(list(self._guard.optimizers.values()))

    # -- incidents ---------------------------------------------------------------------------------------------------

    def _wants_calls(self) -> bool:
        wanted = self._first_steps.wants_calls or self._moments.wants_calls or self._batches.wants_calls
        wanted = wanted or self.options.on_nonfinite == "skip-step"
        return self._live is not None or wanted or self._batch_sizes.wants_calls

    def _on_incident(self, incident: Incident) -> None:
        begin = time.perf_counter()
        try:
            trace = None if self._live is None else self._live.end()
            record = explain(
                incident,
                moments=self._moments,
                optimizers=self._optimizers(),
                frame=_outside(sys._getframe()),
                run_backward=self._run_backward(),
                options=self.options,
                trace=trace,
                number=len(self.recording.incidents),
                extra=self._describe(),
                module=self._described,
            )
            if self._restoring is not None:
                record = self._restoring.as_saved(record)
            self.recording.add_incident(record)
        finally:
            self._excluded += time.perf_counter() - begin
        spoilt = incident.late or incident.kind not in ("loss", "gradient")
        if self.options.on_nonfinite == "stop" or (self.options.on_nonfinite == "skip-step" and spoilt):
            self._stop_at_incident()

    def _dropped_steps(self) -> int:
        return 0 if self._policy is None else self._policy.dropper.dropped

    def _stop_at_incident(self) -> None:
        self._stopped = "incident"
        raise StopRun(INCIDENT_EXIT_CODE)

    def _on_skipped_step(self, incident: Incident, scaler: Any) -> bool:
        begin = time.perf_counter()
        try:
            found = explain_skipped_step(
                incident,
                scaler,
                self._moments,
                self._optimizers(),
                _outside(sys._getframe()),
                self._run_backward(),
                self.options,
                self._described,
            )
        finally:
            self._excluded += time.perf_counter() - begin
        if found is not None:
            self.recording.keep(found, whole=True)
        return found is not None

    def _on_zero_gradients(self, incident: Incident, number_format: str) -> None:
        begin = time.perf_counter()
        try:
            found = explain_zero_gradients(
                incident,
                number_format,
                self._moments,
                self._optimizers(),
                _outside(sys._getframe()),
                self._run_backward(),
            )
        finally:
            self._excluded += time.perf_counter() - begin
        if found is None:
            return
        before = self.recording.all(UnderflowRecord)
        if before:
            before[0].add(found)
        else:
            self.recording.keep(found)

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return list(self._guard.optimizers.values())

    def _run_backward(self) -> Callable[..., None]:
        return self._source.original_backward

    def _on_steps_done(self) -> None:
        if self._restoring is not None:
            self.recording.add_unchecked("the step was finite when it was run again")
        self._stopped = "steps"
        raise StopRun(0)

    def _rerun_step(self) -> int | None:
        for incident in self.recording.incidents:
            if incident.kind in ("loss", "gradient") and incident.origin is None and incident.step is not None:
                return max(0, incident.step - incident.late)
        return None

    # -- summary -----------------------------------------------------------------------------------------------------

    def _facts(self) -> dict[str, int | None]:
        return {
            "steps": self._guard.steps,
            "passes": self._guard.passes,
            "skipped": self._guard.skipped,
            "dropped": self._dropped_steps(),
            "batches": self._inventory.batches,
            "clips": self._inventory.clips,
        }

    def _watched(self) -> tuple[str, ...]:
        seen, guard = self._inventory, self._guard
        if not guard.passes and not guard.met:
            return ()
        counts = [
            (guard.steps, "step"),
            (self._dropped_steps(), "dropped step"),
            (guard.passes, "backward pass"),
            (len(seen.models), "model"),
            (guard.met, "optimizer"),
            (len(seen.loaders), "loader"),
            (len(seen.schedules), "schedule"),
            (len(seen.scalers), "loss scaler"),
        ]
        told = [f"{count} {_plural(name, count)}" for count, name in counts if count]
        dropped = "" if self._policy is None else listed(self._policy.dropper)
        if dropped:
            told.append(f"dropped: {dropped}")
        return tuple(told if guard.met else [*told, "without an optimizer whose weights could be watched"])


def active_session() -> Session | None:
    """Return the session that watches this process, None where there is none."""
    return Session._active


def _plural(name: str, count: int) -> str:
    if count == 1:
        return name
    return name + ("es" if name.endswith("s") else "s")


def _is_compiled(model: torch.nn.Module) -> bool:
    return any(type(module).__name__ == "OptimizedModule" for module in model.modules())


def _outside(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that isn't ours."""
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("unstuck."):
        frame = frame.f_back
    return frame
