"""The values that one loop logs.

Values that are logged together are kept together: the names of one ``log_dict`` call share a :class:`Group` whose
values are one vector, so that a hundred gradient norms cost one copy and, at epoch level, one multiplication and one
addition. The arithmetic is element by element, so a vector gives the same bits as its elements would one by one.

The step's path is short: the call's arguments are looked up in a table of routes. Only a call that isn't in the table
is checked, so a wrong argument is told at the first call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_warn
from unstuck.trainer.results.batch_size import extract_batch_size
from unstuck.trainer.results.holders import Group, MetricHolder, RunContext
from unstuck.trainer.results.metric_objects import attribute_of_metric, is_metric, is_metric_collection
from unstuck.trainer.results.options import LogOptions, Settings, resolve_settings
from unstuck.trainer.results.values import (
    accumulation_dtype,
    check_loggable,
    gather,
    gather_checked,
    mixed_kinds,
    snapshot,
)

__all__ = ["Published", "ResultStore", "RunContext"]


@dataclasses.dataclass
class Published:
    """What is visible from outside, all tensors of one element."""

    callback: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    logged: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    progress_bar: dict[str, Tensor] = dataclasses.field(default_factory=dict)

    def update(self, newer: Published) -> None:
        """Take over all of ``newer``'s values."""
        self.callback.update(newer.callback)
        self.logged.update(newer.logged)
        self.progress_bar.update(newer.progress_bar)


class ResultStore:
    """What one loop (training, validation or test) has logged.

    The loop sets :attr:`hook` before it calls a hook that may log, and tells batches and epochs by the methods below.

    Args:
        training: whether this is the training loop, whose step values callbacks see.
        context: of the run, shared by all loops.

    Attributes:
        hook: name of the running hook, None while none runs.
        dataloader_idx: index of the evaluation loader, None where there is only one.
    """

    def __init__(self, training: bool, context: RunContext) -> None:
        self.training = training
        self.context = context
        self.hook: str | None = None
        self.dataloader_idx: int | None = None
        self._batch: Any = None
        self._batch_size: int | None = None
        # None between the epochs, True in the first batch, False in the later ones.
        self._in_first_batch: bool | None = None
        self._last_hook: str | None = None
        self._routes: dict[Any, Group | MetricHolder] = {}
        # Keys of an epoch that another process began, as long as they weren't logged here.
        self._begun: set[tuple[str, str, int | None]] = set()
        # In the order of the first call, which is the order of publication.
        self._places: dict[tuple[str, str, int | None], tuple[Group | MetricHolder, int]] = {}

    # What the loop tells.

    def begin_batch(self, batch: Any, dataloader_idx: int | None = None) -> None:
        """A batch comes: its size weighs the values that are logged until :meth:`end_batch`."""
        self._in_first_batch = self._in_first_batch is None
        self._batch = batch
        self._batch_size = None
        self.dataloader_idx = dataloader_idx

    def begin_inside(self, outer: ResultStore) -> None:
        """The loop begins between two batches of another one.

        Until its first batch the outer loop's step values are what is published: what the hooks before it log becomes
        visible with that batch. This is Lightning's timing.
        """
        self._in_first_batch = outer._in_first_batch

    def end_batch(self) -> None:
        """The batch is done with: let go of it."""
        self._batch = None
        self._batch_size = None

    def reach_epoch_end(self) -> None:
        """All batches were seen: from now on epoch values are published instead of step values."""
        self._in_first_batch = None

    def close_epoch(self) -> None:
        """The epoch's hooks have run: the next value logged by a hook begins anew."""
        self._last_hook = None

    def reset(self) -> None:
        """Forget all values, not the keys. Metric objects are reset themselves."""
        for holder in self._holders():
            holder.reset()
        self._in_first_batch = None
        self._last_hook = None

    def sums(self) -> list[list[Any]]:
        """Return the epoch's sums so far, as plain values: settings, sum, weight and newest value of each key.

        Metric objects keep theirs themselves: for them there is no sum, and the settings name the object.
        """
        groups = [holder for holder in self._holders() if isinstance(holder, Group) and holder.total is not None]
        singles = [single for group in groups for single in (group.split() if len(group.settings) > 1 else [group])]
        metrics = [holder for holder in self._holders() if isinstance(holder, MetricHolder) and not holder.empty]
        kept = [
            *([single.settings[0], single.total, single.weight, single.step] for single in singles),
            *([holder.settings[0], None, 0, holder.step] for holder in metrics),
        ]
        return [[list(settings), *values] for settings, *values in kept if settings.sync_dist_group is None]

    def continue_epoch(self, sums: list[list[Any]]) -> None:
        """Go on with an epoch that has begun.

        Args:
            sums: what :meth:`sums` returned.
        """
        metrics = dict(self.context.module.named_modules()) if self.context.module is not None else {}
        for entry, total, weight, step in sums:
            settings = Settings(*entry)
            if total is not None:
                group = Group([settings], accumulation_dtype())
                group.total, group.weight, group.step, group.empty = total, weight, step, False
                self._places[settings.key] = group, 0
            elif is_metric(metrics.get(settings.metric_attribute)):
                holder = MetricHolder(settings, metrics[settings.metric_attribute])
                holder.step, holder.empty = step, False
                self._places[settings.key] = holder, 0
            else:
                continue
            self._begun.add(settings.key)
        # The next batch isn't the first of the epoch.
        self._in_first_batch = True

    def has(self, name: str) -> bool:
        """Whether a step's or an epoch's value is published under a name."""
        return any(
            name in holder.settings[index].published_names(on_step)
            for holder, index in self._places.values()
            for on_step in (True, False)
        )

    @property
    def on_step(self) -> bool:
        """Whether step values are published now, as opposed to epoch values."""
        return self._in_first_batch is not None

    # What the user's code calls.

    def log(self, name: str, value: Any, options: tuple[Any, ...], batch_size: int | None = None) -> None:
        """Log one value.

        Args:
            name: key.
            value: number, tensor with one element, or ``torchmetrics.Metric``.
            options: the fields of :class:`LogOptions` in their order.
            batch_size: weight in the epoch's mean; None to find it in the batch.

        Raises:
            MisconfigurationException: when the hook can't log, or not in this way, or the key was logged differently.
            ValueError: when the value is no scalar.
        """
        route = (self.hook, name, self.dataloader_idx, options)
        target = self._routes.get(route)
        if target is None or (type(target) is MetricHolder and target.metric is not value):
            target = self._routes[route] = self._place(name, value, LogOptions(*options))
        if self._in_first_batch is not False and self._last_hook != self.hook:
            self._restart(self.hook)
        self._last_hook = self.hook
        if isinstance(target, Group):
            if type(value) is Tensor and value.dtype is torch.float32 and not value.ndim and not target.keep_graph:
                kept = value.detach().clone()
            else:
                kept = snapshot(name, value, target.keep_graph)
            target.update(kept, self._weight(target) if batch_size is None else batch_size, self.context)
        else:
            target.update()

    def log_dict(self, values: Mapping[str, Any], options: tuple[Any, ...], batch_size: int | None = None) -> None:
        """Log several values with the same options. The arguments are those of :meth:`log`, for each value.

        A ``torchmetrics.MetricCollection`` serves as ``values`` as well.
        """
        route = (self.hook, tuple(values), self.dataloader_idx, options)
        target = self._routes.get(route)
        vector = None if target is None else gather(list(values.values()))
        if type(target) is not Group or vector is None or vector.dtype is not target.dtype:
            if is_metric_collection(values):
                values = dict(values.items(keep_base=False))  # type: ignore[call-arg]
            vector = self._gather_new(values, LogOptions(*options))
            together = None if vector is None else self._place_together(tuple(values), vector, LogOptions(*options))
            if vector is None or together is None:
                for name, value in values.items():
                    self.log(name, value, options, batch_size)
                return
            target = self._routes[route] = together
        if self._in_first_batch is not False and self._last_hook != self.hook:
            self._restart(self.hook)
        self._last_hook = self.hook
        target.update(vector, self._weight(target) if batch_size is None else batch_size, self.context)

    # What is published.

    def published(self) -> Published:
        """Return the step's or the epoch's values under the names that callbacks, loggers and progress bar see.

        Raises:
            ValueError: when a metric object computes something else than a tensor.
        """
        on_step = self.on_step
        result = Published()
        elements: dict[Group, tuple[Tensor, ...]] = {}
        for holder, index in self._places.values():
            settings = holder.settings[index]
            if holder.empty or settings.dataloader_idx != self.dataloader_idx:
                continue
            if not (settings.on_step if on_step else settings.on_epoch):
                continue
            value: Any
            if isinstance(holder, Group):
                if holder not in elements:
                    values = holder.step if on_step else holder.epoch(self.context)
                    elements[holder] = () if values is None else values.reshape(-1).unbind()
                value = elements[holder][index]
            else:
                value = _metric_value(holder, on_step)
                if value is None:
                    continue
            name, level_name = settings.published_names(on_step)
            if settings.logger:
                result.logged[level_name] = value
            # A step's value isn't what callbacks monitor in an evaluation.
            if self.training or not on_step:
                result.callback[name] = value
                result.callback[level_name] = value
            if settings.prog_bar:
                result.progress_bar[level_name] = value
        return result

    def mark(self) -> list[tuple[Group, tuple[Any, ...]]]:
        """What has been logged so far, for :meth:`return_to`. Metric objects aren't in it."""
        groups = [holder for holder in self._holders() if isinstance(holder, Group)]
        return [(group, (group.total, group.weight, group.step, group.empty)) for group in groups]

    def return_to(self, mark: list[tuple[Group, tuple[Any, ...]]]) -> None:
        """Forget the values that were logged since."""
        known = {id(group): values for group, values in mark}
        for holder in self._holders():
            if not isinstance(holder, Group):
                continue
            if id(holder) in known:
                holder.total, holder.weight, holder.step, holder.empty = known[id(holder)]
                holder._epoch = None
            else:
                holder.reset()

    def newest(self, hook: str, part: str) -> dict[str, Tensor]:
        """Return what ``hook`` logged of the present loader under names with ``part`` in them.

        That is the newest value, or the epoch's sum where only that is kept; it is finite as long as all values are.
        """
        found = {}
        for (logged_in, name, loader), (holder, index) in self._places.items():
            if logged_in != hook or loader != self.dataloader_idx or part not in name.lower():
                continue
            values = (holder.total if holder.step is None else holder.step) if isinstance(holder, Group) else None
            if values is not None and not holder.empty:
                found[name] = values.reshape(-1)[index]
        return found

    # Where values are kept.

    def _settings(self, name: str, options: LogOptions) -> Settings:
        """Resolve and check one key, against what it was logged with before, too."""
        if "/dataloader_idx_" in name:
            raise MisconfigurationException(
                f"`self.log({name!r}, ...)`: the loader's index is added to the name, so it can't be part of it."
            )
        settings = resolve_settings(
            self.hook, name, options, self.dataloader_idx, distributed=self.context.reduce is not None
        )
        if options.logger and not self.context.has_logger:
            rank_zero_warn(f"`self.log({name!r}, ..., logger=True)`: there is no logger. Give one to the Trainer.")
        place = self._places.get(settings.key)
        if settings.key in self._begun:
            self._begun.discard(settings.key)
            if place is not None and place[0].settings[place[1]] != settings:
                # The program was changed since: what it logged then is something else.
                place = None
                del self._places[settings.key]
        if place is not None and place[0].settings[place[1]] != settings:
            raise MisconfigurationException(
                f"`self.log({name!r}, ...)` was called twice in `{self.hook}` with different arguments."
                " One key has one meaning: give the second value another name."
            )
        return settings

    def _place(self, name: str, value: Any, options: LogOptions) -> Group | MetricHolder:
        """Find or make the place of a single value."""
        check_loggable(name, value)
        metric = is_metric(value)
        if metric and options.metric_attribute is None:
            options = options._replace(metric_attribute=attribute_of_metric(self.context.module, value, name))
        settings = self._settings(name, options)
        holder, _ = self._places.get(settings.key, (None, 0))
        if isinstance(holder, Group) and len(holder.settings) > 1:
            self._dissolve(holder)
            holder, _ = self._places[settings.key]
        if holder is None:
            holder = MetricHolder(settings, value) if metric else Group([settings], accumulation_dtype())
            self._places[settings.key] = holder, 0
        if isinstance(holder, MetricHolder):
            if not metric:
                raise mixed_kinds(name)
            holder.metric = value
        return holder

    def _gather_new(self, values: Mapping[str, Any], options: LogOptions) -> Tensor | None:
        """Return the values as one vector, None where each has to be kept by itself."""
        if len(values) < 2 or options.enable_graph or any(map(is_metric, values.values())):
            return None
        return gather_checked(values)

    def _place_together(self, names: tuple[str, ...], vector: Tensor, options: LogOptions) -> Group | None:
        """Make one group of all names, with the histories that they have; None if no vector can hold these exactly."""
        settings = [self._settings(name, options) for name in names]
        for each in settings:
            holder, _ = self._places.get(each.key, (None, 0))
            if isinstance(holder, Group) and len(holder.settings) > 1:
                self._dissolve(holder)
        former = [self._places.get(each.key, (None, 0))[0] for each in settings]
        group = Group(settings, vector.dtype)
        if not group.join([each if isinstance(each, Group) else None for each in former], vector.device):
            return None
        for index, each in enumerate(settings):
            self._places[each.key] = group, index
        self._forget_routes(former)
        return group

    def _dissolve(self, group: Group) -> None:
        """Keep each value of a group by itself: its names were logged in another company."""
        for single in group.split():
            self._places[single.settings[0].key] = single, 0
        self._forget_routes([group])

    def _forget_routes(self, targets: Iterable[object]) -> None:
        gone = set(map(id, targets))
        self._routes = {route: target for route, target in self._routes.items() if id(target) not in gone}

    # Batches and epochs.

    def _weight(self, group: Group) -> int:
        """Return the weight of a value that came without a batch size."""
        if self._batch_size is None:
            if self._batch is None or not group.on_epoch or group.reduction != "mean":
                return 1
            self._batch_size = extract_batch_size(self._batch)
        return self._batch_size

    def _restart(self, hook: str | None) -> None:
        """Forget what ``hook`` logged in the epoch before. Metric objects were reset when that epoch ended."""
        for holder in self._holders():
            if not isinstance(holder, Group):
                continue
            hook_of_holder, _, dataloader_idx = holder.settings[0].key
            # What carries a loader's index was forgotten when the evaluation ended.
            if hook_of_holder == hook and dataloader_idx is None:
                holder.reset()

    def _holders(self) -> list[Group | MetricHolder]:
        return list(dict.fromkeys(holder for holder, _ in self._places.values()))


def _metric_value(holder: MetricHolder, on_step: bool) -> Tensor | None:
    """Return what a metric object has to publish, None when its ``forward`` wasn't called in this step."""
    value = holder.step if on_step else holder.epoch()
    settings = holder.settings[0]
    if value is not None and not isinstance(value, Tensor):
        raise ValueError(
            f"The metric object logged as {settings.name!r} must compute a tensor, but it computed a"
            f" {type(value).__name__}."
        )
    return value if value is None or settings.enable_graph else value.detach()
