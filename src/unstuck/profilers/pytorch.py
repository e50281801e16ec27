"""What torch computed during an action: operators, kernels, memory."""

from __future__ import annotations

import inspect
import os
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import EventList
from torch.profiler import ProfilerAction, ProfilerActivity, record_function

from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_warn
from unstuck.profilers.profiler import Profiler

__all__ = ["PyTorchProfiler"]

# One step to wait, one to warm up, three to record: what is recorded takes little of a long run.
SCHEDULE = {"wait": 1, "warmup": 1, "active": 3}
SHORTEST = sum(SCHEDULE.values())
TRAINING_BATCH = "run_training_batch"


class PyTorchProfiler(Profiler):
    """Runs :class:`torch.profiler.profile` for some steps of each kind (training, validation, ...) and reports the
    operators by their time.

    Recorded are steps 3 to 5 of each kind, unless a ``schedule`` says otherwise, and all steps where there are fewer;
    the sanity check is left out. Where there is a directory, the trace is written there for Chrome's viewer or
    TensorBoard.

    Args:
        dirpath: directory of report and traces; None for the logger's.
        filename: of the report, without ending; None to log it.
        group_by_input_shapes: whether calls with other shapes are listed apart; needs ``record_shapes=True``.
        emit_nvtx: mark operators for NVIDIA's profilers instead of recording them here.
        export_to_chrome: whether traces are written.
        row_limit: rows of the table, -1 for all.
        sort_by_key: by which the rows are sorted; None for the total time on the device, or the CPU without one.
        record_module_names: whether the forward pass of every module is marked with its name.
        table_kwargs: for the table of :class:`torch.autograd.profiler_util.EventList`.
        profiler_kwargs: for :class:`torch.profiler.profile`.

    Attributes:
        profiler: torch's own while it records, else None.
        function_events: what was recorded last, None before that. It and :meth:`summary` stay until the next run.

    Raises:
        MisconfigurationException: an unknown ``sort_by_key``, or a schedule that is none.
        KeyError: something in ``table_kwargs`` that a table doesn't take.
    """

    STEP_FUNCTIONS = frozenset({"training_step", "validation_step", "test_step", "predict_step"})
    AVAILABLE_SORT_KEYS = frozenset(
        {
            "cpu_time",
            "cuda_time",
            "cpu_time_total",
            "cuda_time_total",
            "cpu_memory_usage",
            "cuda_memory_usage",
            "self_cpu_memory_usage",
            "self_cuda_memory_usage",
            "count",
        }
    )

    def __init__(
        self,
        dirpath: str | Path | None = None,
        filename: str | None = None,
        group_by_input_shapes: bool = False,
        emit_nvtx: bool = False,
        export_to_chrome: bool = True,
        row_limit: int = 20,
        sort_by_key: str | None = None,
        record_module_names: bool = True,
        table_kwargs: dict[str, Any] | None = None,
        **profiler_kwargs: Any,
    ) -> None:
        super().__init__(dirpath=dirpath, filename=filename)
        self._group_by_input_shapes = group_by_input_shapes and profiler_kwargs.get("record_shapes", False)
        self._emit_nvtx = emit_nvtx
        self._export_to_chrome = export_to_chrome
        self._row_limit = row_limit
        self._record_module_names = record_module_names
        self._table_kwargs = table_kwargs or {}
        self._own_schedule = profiler_kwargs.pop("schedule", None)
        self._on_trace_ready = profiler_kwargs.pop("on_trace_ready", None)
        activities = profiler_kwargs.pop("activities", None)
        self._activities = activities or [ProfilerActivity.CPU, *_cuda_activity()]
        on_device = ProfilerActivity.CUDA in self._activities
        self._sort_by_key = sort_by_key or ("cuda_time_total" if on_device else "cpu_time_total")
        self._profiler_kwargs = profiler_kwargs
        self._check_arguments()
        self.profiler: torch.profiler.profile | None = None
        self._nvtx = ExitStack()
        self._marks: dict[str, record_function] = {}
        self._module_marks: _ModuleMarks | None = None
        self._steps: _Steps | None = None
        self._traces: dict[str, EventList] = {}
        self.function_events: EventList | None = None
        self._step_kind = "records"
        self._step_action = ""
        self._is_over = False

    def _check_arguments(self) -> None:
        if self._sort_by_key not in self.AVAILABLE_SORT_KEYS:
            raise MisconfigurationException(
                f"`sort_by_key={self._sort_by_key!r}` is not known; choose one of {sorted(self.AVAILABLE_SORT_KEYS)}."
            )
        known = set(inspect.signature(EventList.table).parameters) - {"self", "sort_by", "row_limit"}
        unknown = sorted(set(self._table_kwargs) - known)
        if unknown:
            raise KeyError(f"`table_kwargs` has {unknown}, but takes {sorted(known)}.")
        if self._own_schedule is None:
            return
        if not callable(self._own_schedule) or not isinstance(self._own_schedule(0), ProfilerAction):
            raise MisconfigurationException(
                f"`schedule={self._own_schedule!r}` should be a function of the step that returns a"
                " `torch.profiler.ProfilerAction`."
            )

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        super().setup(stage, local_rank, log_dir)
        self._traces, self._is_over = {}, False

    def start(self, action_name: str) -> None:
        if self.profiler is None and self._may_begin(action_name):
            self._begin(action_name)
        if self.profiler is not None and action_name not in self._marks:
            mark = self._marks[action_name] = record_function(f"[pl][profile]{action_name}")
            mark.__enter__()

    def stop(self, action_name: str) -> None:
        mark = self._marks.pop(action_name, None)
        if mark is not None:
            mark.__exit__(None, None, None)
        kind = _kind_of(action_name)
        if self.profiler is None or kind is None or self._emit_nvtx:
            return
        self._step_action = action_name
        if self._steps is None:
            return
        self._steps.kind = self._step_kind = kind
        with warnings.catch_warnings():
            # torch warns that a second trace replaces the first one, which is kept here.
            warnings.filterwarnings("ignore", ".*Profiler clears events", UserWarning)
            self.profiler.step()

    def _may_begin(self, action: str) -> bool:
        """With a Trainer it begins at the first step, when the number of steps is known; else at once."""
        if self._is_over or self._lightning_module is None:
            return not self._is_over
        is_step = action == TRAINING_BATCH or _kind_of(action) is not None
        return is_step and not self._lightning_module.trainer.sanity_checking

    def _begin(self, action: str) -> None:
        module = self._lightning_module
        if module is not None and self._record_module_names:
            self._module_marks = _ModuleMarks(module)
        if self._emit_nvtx:
            self._nvtx.enter_context(torch.cuda.profiler.profile())
            self._nvtx.enter_context(torch.autograd.profiler.emit_nvtx())
            self._is_over = True
            return
        self._step_kind = "training_step" if action == TRAINING_BATCH else _kind_of(action) or "records"
        schedule: Callable[[int], ProfilerAction] | None = None
        if self._own_schedule is not None or _batches(module, self._step_kind) >= SHORTEST:
            default = torch.profiler.schedule(**SCHEDULE)
            schedule = self._steps = _Steps(self._own_schedule or default)
        taken = inspect.signature(torch.profiler.profile.__init__).parameters
        kwargs = {name: value for name, value in self._profiler_kwargs.items() if name in taken}
        self.profiler = torch.profiler.profile(
            activities=self._activities, schedule=schedule, on_trace_ready=self._keep, **kwargs
        )
        self.profiler.__enter__()

    def _keep(self, profile: Any) -> None:
        """A trace is complete."""
        self.function_events = self._traces[self._step_kind] = profile.events()
        if self._on_trace_ready is not None:
            self._on_trace_ready(profile)
        elif self._export_to_chrome and self.dirpath is None:
            rank_zero_warn("The trace isn't written: the profiler has no `dirpath` and the Trainer no logger.")
        elif self._export_to_chrome:
            name = self._prepare_filename(action_name=self._step_action, extension="")
            torch.profiler.tensorboard_trace_handler(os.fspath(self.dirpath or "."), name)(profile)

    def summary(self) -> str:
        self._end()
        texts = {}
        for kind, events in self._traces.items():
            averages = _without_spans_on_device(
                events.key_averages(group_by_input_shapes=self._group_by_input_shapes), events
            )
            table = averages.table(sort_by=self._sort_by_key, row_limit=self._row_limit, **self._table_kwargs)
            texts["records" if len(self._traces) == 1 else f"records of {kind}"] = table
        return self._stats_to_str(texts) if texts else ""

    def teardown(self, stage: str | None) -> None:
        self._end()
        self._steps = None
        super().teardown(stage)

    def _end(self) -> None:
        for name in list(self._marks):
            self._marks.pop(name).__exit__(None, None, None)
        self._nvtx.close()
        if self._module_marks is not None:
            self._module_marks.remove()
            self._module_marks = None
        if self.profiler is not None:
            profiler, self.profiler, self._is_over = self.profiler, None, True
            profiler.__exit__(None, None, None)

    def __getstate__(self) -> dict[str, Any]:
        # A copy begins anew.
        return {**self.__dict__, "profiler": None, "_marks": {}, "_module_marks": None, "_lightning_module": None}


class _Steps:
    """A schedule that counts the steps of each kind apart, and lets one recording end before the next one begins."""

    def __init__(self, schedule: Callable[[int], ProfilerAction]) -> None:
        self.kind: str | None = None
        self._schedule = schedule
        self._counts: Counter[str] = Counter()
        self._done: set[str] = set()
        self._last = ProfilerAction.NONE

    def __call__(self, _: int) -> ProfilerAction:
        if self.kind is None:
            return ProfilerAction.NONE
        action = ProfilerAction.NONE
        if self.kind not in self._done:
            self._counts[self.kind] += 1
            action = self._schedule(self._counts[self.kind])
        if self._last is ProfilerAction.RECORD and action in (ProfilerAction.NONE, ProfilerAction.WARMUP):
            action = ProfilerAction.RECORD
        if action is ProfilerAction.RECORD_AND_SAVE:
            self._done.add(self.kind)
        self._last = action
        return action


class _ModuleMarks:
    """Marks the forward pass of every module with its class and name."""

    def __init__(self, model: nn.Module) -> None:
        self._open: dict[str, list[record_function]] = {}
        self._hooks: list[Any] = []
        for name, module in model.named_modules():
            if not name or isinstance(module, torch.jit.ScriptModule):
                continue
            mark = f"[pl][module]{type(module).__module__}.{type(module).__name__}: {name}"
            self._hooks.append(module.register_forward_pre_hook(partial(self._enter, mark)))
            self._hooks.append(module.register_forward_hook(partial(self._leave, mark), always_call=True))

    def _enter(self, mark: str, module: nn.Module, args: Any) -> None:
        entered = record_function(mark)
        entered.__enter__()
        self._open.setdefault(mark, []).append(entered)

    def _leave(self, mark: str, module: nn.Module, args: Any, output: Any) -> None:
        entered = self._open.get(mark)
        if entered:
            entered.pop().__exit__(None, None, None)

    def remove(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()


def _kind_of(action: str) -> str | None:
    """The kind of step that an action is, None if it is none."""
    return next((kind for kind in sorted(PyTorchProfiler.STEP_FUNCTIONS) if action.endswith(kind)), None)


def _batches(module: Any, kind: str) -> float:
    """Steps of a kind in one pass over the data; 0 without a Trainer, where nobody knows."""
    if module is None:
        return 0
    trainer = module.trainer
    of_kind = {
        "training_step": trainer.num_training_batches,
        "validation_step": trainer.num_val_batches,
        "test_step": trainer.num_test_batches,
        "predict_step": trainer.num_predict_batches,
    }[kind]
    return float(sum(of_kind) if isinstance(of_kind, list) else of_kind)


def _without_spans_on_device(averages: EventList, events: EventList) -> EventList:
    """Leave out the marks of spans on the device's own time line.

    Such a mark stands for the kernels below it, which are listed themselves: counted as well, the shares of all rows
    would add up to many times the total.
    """
    kept = [
        average for average in averages if not (average.is_user_annotation and average.device_type != DeviceType.CPU)
    ]
    return EventList(
        kept,
        use_device=getattr(events, "_use_device", None),
        profile_memory=getattr(events, "_profile_memory", False),
        with_flops=getattr(events, "_with_flops", False),
    )


def _cuda_activity() -> list[ProfilerActivity]:
    return [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
