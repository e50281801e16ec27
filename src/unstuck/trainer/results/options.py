"""The keywords of ``self.log``, as given and as resolved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from unstuck.trainer.results.hooks import resolve_levels
from unstuck.trainer.results.reduction import parse_reduction

__all__ = ["LogOptions", "Settings", "resolve_settings"]


class LogOptions(NamedTuple):
    """The keywords of ``self.log`` that stay the same from step to step, in this order.

    A plain tuple in this order serves as well wherever options are taken: the step's path only hashes it.
    """

    prog_bar: bool = False
    logger: bool | None = None
    on_step: bool | None = None
    on_epoch: bool | None = None
    reduce_fx: str | Callable[[Any], Any] = "mean"
    enable_graph: bool = False
    sync_dist: bool = False
    sync_dist_group: Any = None
    add_dataloader_idx: bool = True
    metric_attribute: str | None = None
    rank_zero_only: bool = False


class Settings(NamedTuple):
    """How one key is kept and published. Two calls for one key must agree in all of it."""

    hook: str
    name: str
    prog_bar: bool
    logger: bool
    on_step: bool
    on_epoch: bool
    reduction: str
    enable_graph: bool
    sync_dist: bool
    sync_dist_group: Any
    add_dataloader_idx: bool
    dataloader_idx: int | None
    metric_attribute: str | None
    rank_zero_only: bool

    @property
    def key(self) -> tuple[str, str, int | None]:
        """What makes two calls belong to the same value."""
        return self.hook, self.name, self.dataloader_idx if self.add_dataloader_idx else None

    @property
    def synced(self) -> bool:
        """Whether the value is reduced over all processes."""
        return self.sync_dist and not self.rank_zero_only

    def published_names(self, on_step: bool) -> tuple[str, str]:
        """Return the plain name and the name that tells step from epoch where both are published."""
        suffix = ""
        if self.add_dataloader_idx and self.dataloader_idx is not None:
            suffix = f"/dataloader_idx_{self.dataloader_idx}"
        level = ""
        if self.on_step and self.on_epoch:
            level = "_step" if on_step else "_epoch"
        return self.name + suffix, self.name + level + suffix


def resolve_settings(
    hook: str | None, name: str, options: LogOptions, dataloader_idx: int | None, distributed: bool
) -> Settings:
    """Fill in the hook's defaults and check every keyword.

    Args:
        hook: the running hook, None outside of the Trainer's control flow.
        name: key to log.
        options: as the caller gave them.
        dataloader_idx: index of the evaluation loader, None where there is only one.
        distributed: whether there is more than one process.

    Raises:
        MisconfigurationException: as :func:`resolve_levels` and :func:`parse_reduction`.
    """
    on_step, on_epoch = resolve_levels(hook, options.on_step, options.on_epoch)
    assert hook is not None
    return Settings(
        hook=hook,
        name=name,
        prog_bar=options.prog_bar,
        logger=True if options.logger is None else options.logger,
        on_step=on_step,
        on_epoch=on_epoch,
        reduction=parse_reduction(options.reduce_fx),
        enable_graph=options.enable_graph,
        sync_dist=options.sync_dist and distributed,
        sync_dist_group=options.sync_dist_group,
        add_dataloader_idx=options.add_dataloader_idx,
        dataloader_idx=dataloader_idx,
        metric_attribute=options.metric_attribute,
        rank_zero_only=options.rank_zero_only,
    )
