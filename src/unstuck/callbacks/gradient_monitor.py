"""Watches gradients: how large they are in every layer, what clipping does to them, how far weights move."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from unstuck.callbacks.callback import Callback
from unstuck.callbacks.writing import logs_are_due, stepped_batches
from unstuck.errors import MisconfigurationException
from unstuck.measure.gradient_norms import norms_of, parse_norm_type, total_of
from unstuck.messages import rank_zero_warn
from unstuck.trainer.hooks import has_own

if TYPE_CHECKING:
    from unstuck.callbacks.callback import StepOutput
    from unstuck.session.session import Session
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["GradientMonitor"]

# Totals that wait on the device before they are counted together.
BLOCK = 64
# Formats in which torch's clipping has the same norm, to the bit.
PLAIN = (torch.float32, torch.float64)


@dataclass
class _Optimizer:
    """One optimiser in the present step, and what clipping did to it so far.

    Attributes:
        names: dotted names of its parameters, by identity.
        suffix: of keys that several optimisers would share.
        step: index of the present step, counted from 0.
        taken: steps that were seen.
        is_due: whether the present step is one of those that are looked at.
        is_measured: whether it was.
        before: name, parameter and its value before the step, where updates are asked for.
        pending: (norm before clipping, limit) of steps that aren't counted yet.
        steps: steps that clipping by norm has seen.
        acted: in how many of them it acted.
        factors: sum of the factors in these.
    """

    names: dict[int, str]
    suffix: str
    step: int = 0
    taken: int = 0
    is_due: bool = False
    is_measured: bool = False
    before: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)
    pending: list[tuple[Tensor, float]] = field(default_factory=list)
    steps: int = 0
    acted: int = 0
    factors: float = 0.0

    def begin_step(self, every: int) -> None:
        """Find out whether the present step is to be looked at."""
        self.step = self.taken
        self.is_due = self.step % every == 0

    def count(self) -> None:
        """Bring what waits to the CPU."""
        if not self.pending:
            return
        norms = torch.stack([norm.detach().float() for norm, _ in self.pending]).tolist()
        for norm, (_, limit) in zip(norms, self.pending, strict=True):
            self.steps += 1
            if not norm <= limit:
                self.acted += 1
                self.factors += limit / norm if math.isfinite(norm) else 0.0
        self.pending = []


class GradientMonitor(Callback):
    """Logs norms of gradients, as they are before clipping and unscaled::

        Trainer(callbacks=[GradientMonitor(per_layer=True)], gradient_clip_val=1.0)

    What is logged, under the keys of :func:`unstuck.utilities.grad_norm`:

    - ``grad_2.0_norm_total``, the norm of all gradients as one vector, and ``grad_2.0_norm/<name>``, of each;
    - with clipping ``grad_2.0_norm_clipped``, the total after it; with clipping by norm ``grad_clip/share``, the part
      of the steps so far in which it acted, and ``grad_clip/factor``, by what the gradients were multiplied then, on
      average;
    - on request ``update_ratio/<name>`` and ``update_ratio_total``, the 2-norm of the change by the step over that of
      the weight; and a histogram of every gradient, for TensorBoard and W&B.

    Where the Trainer clips by norm, the norm is computed once for both. Under ``unstuck run`` and ``unstuck.watch`` the
    norms go into the debugger's recording too, which then doesn't compute them itself. With several optimisers the
    totals get ``_0``, ``_1``, ... at their ends.

    Args:
        norm_type: p of the norms, above 0 or ``"inf"``.
        every_n_steps: optimiser steps between two that are looked at. The loggers get the newest values whenever
            ``log_every_n_steps`` says so.
        per_layer: True for a norm of every parameter, ``"module"`` for one of every module that has parameters, False
            for the total alone.
        update_ratios: whether updates are compared with weights; it takes a copy of all parameters for the time of a
            step.
        histogram: whether, or every how many optimiser steps, histograms are written; True: as often as the loggers
            get values.
        group_separator: stands between the kind of norm and a name.

    Raises:
        ValueError: ``norm_type`` isn't above 0.
        MisconfigurationException: a number below 1, or an unknown ``per_layer``.
    """

    def __init__(
        self,
        norm_type: float | int | str = 2.0,
        every_n_steps: int = 1,
        per_layer: bool | Literal["module"] = True,
        update_ratios: bool = False,
        histogram: bool | int = False,
        group_separator: str = "/",
    ) -> None:
        if isinstance(every_n_steps, bool) or not isinstance(every_n_steps, int) or every_n_steps < 1:
            raise MisconfigurationException(f"`every_n_steps={every_n_steps!r}` should be an integer of at least 1.")
        if per_layer not in (True, False, "module"):
            raise MisconfigurationException(f"`per_layer={per_layer!r}` should be True, False or 'module'.")
        if not isinstance(histogram, int) or histogram < 0:
            raise MisconfigurationException(f"`histogram={histogram!r}` should be True, False or a number of steps.")
        self.norm_type = parse_norm_type(norm_type)
        self.every_n_steps = every_n_steps
        self.per_layer = per_layer
        self.update_ratios = update_ratios
        self.histogram = histogram
        self.group_separator = group_separator
        self._trainer: Trainer | None = None
        self._optimizers: dict[int, _Optimizer] = {}
        self._restored: list[tuple[int, int, float]] = []
        self._values: dict[str, Tensor | float] = {}
        self._session: Callable[[], Session | None] = _no_session
        self._is_automatic = True
        self._clips_later = False

    @property
    def state_key(self) -> str:
        return self._generate_state_key(norm_type=self.norm_type, per_layer=self.per_layer)

    def state_dict(self) -> dict[str, Any]:
        """Return how often and how hard clipping acted, for each optimiser."""
        for known in self._optimizers.values():
            known.count()
        return {"clipping": [(known.steps, known.acted, known.factors) for known in self._optimizers.values()]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = [tuple(item) for item in state_dict["clipping"]]

    # Hooks.

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        from unstuck.session.session import active_session

        self._session = active_session
        self._trainer = trainer
        self._values = {}
        self._optimizers = {}
        several = len(trainer.optimizers) > 1
        for index, optimizer in enumerate(trainer.optimizers):
            known = _Optimizer(_names(pl_module, optimizer), f"_{index}" if several else "")
            if index < len(self._restored):
                known.steps, known.acted, known.factors = self._restored[index]
            self._optimizers[id(optimizer)] = known
        self._restored = []
        own = has_own("configure_gradient_clipping", pl_module) or has_own("clip_gradients", pl_module)
        self._is_automatic = pl_module.automatic_optimization
        self._clips_later = bool(trainer.gradient_clip_val) and self._is_automatic and not own
        trainer.precision_plugin.clip_observers.append(self)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        known = self._known(optimizer)
        if self._is_automatic or not known.is_measured:
            known.begin_step(self.every_n_steps)
        known.taken += 1
        # What the Trainer clips next is looked at there, and in manual optimisation it may have been before.
        if known.is_due and not self._clips_later and (self._is_automatic or not known.is_measured):
            self._measure(known, optimizer)
        known.is_measured = self._is_automatic and not self._clips_later
        if self.update_ratios and known.is_due:
            known.before = [
                (name, parameter, parameter.detach().clone()) for name, parameter in _named(known, optimizer)
            ]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: StepOutput, batch: Any, batch_idx: int
    ) -> None:
        for known in self._optimizers.values():
            known.is_measured = False
            if known.before:
                self._compare(known)
        values, self._values = self._values, {}
        if logs_are_due(trainer):  # counting waits for the device, as the loggers then do
            self._add_clipping(values)
        if values:
            self.log_dict(values, on_step=True, on_epoch=False)  # type: ignore[attr-defined] # given by the Trainer

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._detach(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._detach(trainer)

    def _detach(self, trainer: Trainer) -> None:
        observers = trainer.precision_plugin.clip_observers
        if self in observers:
            observers.remove(self)
        for known in self._optimizers.values():
            known.before, known.is_measured = [], False
            known.count()
        self._trainer = None

    # What clipping tells.

    def clipping_begins(self, optimizer: Any, algorithm: str) -> Tensor | None:
        """The gradients of an optimiser are about to be clipped.

        Args:
            optimizer: the optimiser, maybe wrapped.
            algorithm: ``"norm"`` or ``"value"``.

        Returns:
            Their 2-norm where it was computed as torch's clipping would, to the bit; else None.
        """
        optimizer = getattr(optimizer, "optimizer", optimizer)
        known = self._known(optimizer)
        if known.is_measured:  # before something that may have changed the gradients
            return None
        if not self._is_automatic:
            known.begin_step(self.every_n_steps)
            known.is_measured = True
        if not known.is_due:
            return None
        total = self._measure(known, optimizer)
        if total is None or self.norm_type != 2.0 or algorithm != "norm":
            return None
        plain = all(_is_plain(item.grad) for _, item in _named(known, optimizer) if item.grad is not None)
        return total if plain else None

    def clipped(self, optimizer: Any, algorithm: str, limit: float, norm: Tensor | None) -> None:
        """The gradients of an optimiser were clipped.

        Args:
            optimizer: the optimiser, maybe wrapped.
            algorithm: ``"norm"`` or ``"value"``.
            limit: as given to clipping.
            norm: the 2-norm before, where clipping is by norm.
        """
        optimizer = getattr(optimizer, "optimizer", optimizer)
        known = self._known(optimizer)
        if norm is not None:
            known.pending.append((norm, limit))
            if len(known.pending) >= BLOCK:
                known.count()
        if not known.is_due:
            return
        after: Tensor
        if norm is not None and self.norm_type == 2.0:
            after = norm * torch.clamp(limit / (norm + 1e-6), max=1.0)
        else:
            gradients = [item.grad for _, item in _named(known, optimizer) if item.grad is not None]
            after = total_of(norms_of(gradients, self.norm_type), self.norm_type)
        self._values[f"grad_{self.norm_type}_norm_clipped{known.suffix}"] = after

    # Measuring.

    def _known(self, optimizer: Optimizer) -> _Optimizer:
        known = self._optimizers.get(id(optimizer))
        if known is None:
            assert self._trainer is not None
            names = _names(self._trainer.lightning_module, optimizer)
            known = self._optimizers[id(optimizer)] = _Optimizer(names, f"_{len(self._optimizers)}")
        return known

    def _measure(self, known: _Optimizer, optimizer: Optimizer) -> Tensor | None:
        """Look at the present gradients of an optimiser; returns the norm of all of them, None if there are none."""
        assert self._trainer is not None
        held = [(name, item) for name, item in _named(known, optimizer) if item.grad is not None]
        if not held:
            return None
        norms = norms_of([item.grad for _, item in held], self.norm_type)
        total = total_of(norms, self.norm_type)
        session = self._session() if self.norm_type == 2.0 else None
        if session is not None:
            session.take_gradient_norms(optimizer, [item for _, item in held], norms)
        prefix = f"grad_{self.norm_type}_norm"
        if self.per_layer is True:
            self._values.update(
                {f"{prefix}{self.group_separator}{name}": norm for (name, _), norm in zip(held, norms, strict=True)}
            )
        elif self.per_layer == "module":
            self._values.update(self._by_module(prefix, [name for name, _ in held], norms))
        self._values[f"{prefix}_total{known.suffix}"] = total
        if self.histogram and self._wants_histogram(known):
            self._write_histograms(held)
        return total

    def _by_module(self, prefix: str, names: list[str], norms: list[Tensor]) -> dict[str, Tensor]:
        modules: dict[str, list[Tensor]] = {}
        for name, norm in zip(names, norms, strict=True):
            modules.setdefault(name.rpartition(".")[0], []).append(norm)
        return {f"{prefix}{self.group_separator}{name}": total_of(own, self.norm_type) for name, own in modules.items()}

    def _compare(self, known: _Optimizer) -> None:
        before, known.before = known.before, []
        changes = norms_of([(item.detach() - old) for _, item, old in before], 2.0)
        weights = norms_of([old for _, _, old in before], 2.0)
        for (name, _, _), change, weight in zip(before, changes, weights, strict=True):
            self._values[f"update_ratio{self.group_separator}{name}"] = _ratio(change, weight)
        total = _ratio(total_of(changes, 2.0), total_of(weights, 2.0))
        self._values[f"update_ratio_total{known.suffix}"] = total

    def _add_clipping(self, values: dict[str, Tensor | float]) -> None:
        for known in self._optimizers.values():
            known.count()
            if known.steps:
                values[f"grad_clip{self.group_separator}share{known.suffix}"] = known.acted / known.steps
                factor = known.factors / known.acted if known.acted else 1.0
                values[f"grad_clip{self.group_separator}factor{known.suffix}"] = factor

    # Histograms.

    def _wants_histogram(self, known: _Optimizer) -> bool:
        assert self._trainer is not None
        if self.histogram is True:
            return logs_are_due(self._trainer)
        return known.step % self.histogram == 0

    def _write_histograms(self, held: Iterable[tuple[str, Any]]) -> None:
        trainer = self._trainer
        assert trainer is not None
        writers = [logger for logger in trainer.loggers if hasattr(logger, "log_histogram")]
        if not writers:
            rank_zero_warn("`GradientMonitor(histogram=...)`: none of the loggers draws histograms.")
            self.histogram = False
        for name, parameter in held:
            for logger in writers:
                values = parameter.grad.detach()
                logger.log_histogram(f"grad{self.group_separator}{name}", values, stepped_batches(trainer))


def _names(module: Any, optimizer: Optimizer) -> dict[int, str]:
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    parameters = [item for group in optimizer.param_groups for item in group["params"]]
    return {id(item): names.get(id(item), f"parameter {index}") for index, item in enumerate(parameters)}


def _named(known: _Optimizer, optimizer: Optimizer) -> list[tuple[str, Any]]:
    parameters = [item for group in optimizer.param_groups for item in group["params"]]
    return [
        (known.names.get(id(item)) or known.names.setdefault(id(item), f"parameter {index}"), item)
        for index, item in enumerate(parameters)
    ]


def _ratio(change: Tensor, weight: Tensor) -> Tensor:
    """Change over weight; NaN where the weight was zero, for then there is nothing to compare with."""
    return torch.where(weight > 0, change / weight, torch.full_like(change, math.nan))


def _no_session() -> None:
    return None


def _is_plain(gradient: Tensor) -> bool:
    return gradient.layout is torch.strided and gradient.dtype in PLAIN
