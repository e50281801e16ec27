"""LightningModule: model, losses and optimisers of a training in one object."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree
from typing_extensions import Self

from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_warn
from unstuck.trainer.checkpoints.loading import load_module, on_class_only
from unstuck.trainer.export import ExportMixin, is_exporting
from unstuck.trainer.hparams import HyperparametersMixin
from unstuck.trainer.lightning_optimizer import LightningOptimizer
from unstuck.trainer.module_hooks import CheckpointHooks, DataHooks, ModelHooks

if TYPE_CHECKING:
    from unstuck.trainer.results import Logbook
    from unstuck.trainer.trainer import Trainer

__all__ = ["LightningModule"]


class LightningModule(HyperparametersMixin, ModelHooks, DataHooks, CheckpointHooks, ExportMixin, nn.Module):
    """A module that knows how it is trained: override ``training_step``, ``configure_optimizers``, and any hook.

    The API is that of Lightning 2.x. A module of the real ``lightning.pytorch`` works with this package's Trainer as
    well.
    """

    CHECKPOINT_HYPER_PARAMS_KEY = "hyper_parameters"
    CHECKPOINT_HYPER_PARAMS_NAME = "hparams_name"
    CHECKPOINT_HYPER_PARAMS_TYPE = "hparams_type"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._trainer: Trainer | None = None
        self._logbook: Logbook | None = None
        self._current_fx_name: str | None = None
        self._automatic_optimization = True
        self._strict_loading: bool | None = None
        self._example_input_array: Any = None
        self._device = torch.device("cpu")
        self._dtype = torch.get_default_dtype()
        self._toggled: dict[nn.Parameter, bool] = {}

    # What the module is asked for.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's own computation, where it has one apart from its steps."""
        return super().forward(*args, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the loss of a training batch.

        Returns:
            The loss; a dict with the key "loss" and whatever else the hooks shall see; or None (or ``SKIP_STEP``) to
            skip the batch.
            In manual optimisation anything of these, unused.
        """
        raise MisconfigurationException("`training_step` must be defined to be used by `Trainer.fit`.")

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates a validation batch; what it returns is handed to ``on_validation_batch_end``."""

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates a test batch; what it returns is handed to ``on_test_batch_end``."""

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Predicts for a batch; by default the module is called on it."""
        return self(args[0] if args else kwargs["batch"])

    def configure_callbacks(self) -> Any:
        """Callbacks of the module's own, one or several.

        One of the same type as a callback of the Trainer replaces it.
        """
        return []

    def configure_optimizers(self) -> Any:
        """The optimisers and their schedulers.

        Returns:
            An optimiser; a list of them; two lists, optimisers and schedulers; a dict with the key "optimizer" and
            maybe "lr_scheduler"
            (a scheduler, or a dict with the keys of ``LRSchedulerConfig``) and "monitor"; several such dicts; or None
            to train nothing.
        """
        raise MisconfigurationException("`configure_optimizers` must be defined to be used by `Trainer.fit`.")

    # How a step is made; override to do it differently.

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Runs the backward pass."""
        loss.backward(*args, **kwargs)

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Optimizer | LightningOptimizer,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """Steps the optimiser in automatic optimisation; the closure computes loss and gradients and has to be
        called.
        """
        optimizer.step(closure=optimizer_closure)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Clears the gradients in automatic optimisation."""
        optimizer.zero_grad()

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clips the gradients before each step in automatic optimisation; the arguments are the Trainer's."""
        self.clip_gradients(
            optimizer, gradient_clip_val=gradient_clip_val, gradient_clip_algorithm=gradient_clip_algorithm
        )

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Steps a scheduler; ``metric`` is the value of its monitor, None without one."""
        if metric is None:
            scheduler.step()
        else:
            scheduler.step(metric)

    # What a step can use.

    def clip_gradients(
        self,
        optimizer: Optimizer | LightningOptimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
        *,
        error_if_nonfinite: bool = False,
    ) -> None:
        """Clips the gradients of an optimiser's parameters. They are unscaled first if a loss scaler has scaled them.

        Args:
            optimizer: whose parameters.
            gradient_clip_val: the largest norm or absolute value; None: the Trainer's.
            gradient_clip_algorithm: "norm" or "value"; None: the Trainer's, "norm" without one.
            error_if_nonfinite: whether gradients that aren't finite are an error. A loss scaler, which tries scales
                that are too large, would have dropped that step.

        Raises:
            MisconfigurationException: a value other than the Trainer's own, or an unknown algorithm.
            RuntimeError: asked for by ``error_if_nonfinite``, before any gradient is clipped; or gradients that can't
                be clipped under a loss scaler.
        """
        trainer = self.trainer
        given = trainer.gradient_clip_val
        if gradient_clip_val is None:
            gradient_clip_val = given or 0.0
        elif given is not None and given != gradient_clip_val:
            raise MisconfigurationException(
                f"`clip_gradients(gradient_clip_val={gradient_clip_val!r})` contradicts"
                f" `Trainer(gradient_clip_val={given!r})`; leave"
                " one of them out."
            )
        own = trainer.gradient_clip_algorithm
        if gradient_clip_algorithm is None:
            gradient_clip_algorithm = own or "norm"
        else:
            gradient_clip_algorithm = gradient_clip_algorithm.lower()
            if own is not None and own != gradient_clip_algorithm:
                raise MisconfigurationException(
                    f"`clip_gradients(gradient_clip_algorithm={gradient_clip_algorithm!r})` contradicts"
                    f" `Trainer(gradient_clip_algorithm={own!r})`; leave one of them out."
                )
        if gradient_clip_algorithm not in ("norm", "value"):
            raise MisconfigurationException(
                f"`gradient_clip_algorithm={gradient_clip_algorithm!r}` is neither 'norm' nor 'value'."
            )
        if gradient_clip_val > 0:
            trainer.precision_plugin.unscale(optimizer)
        trainer.precision_plugin.clip_gradients(
            optimizer, gradient_clip_val, gradient_clip_algorithm, error_if_nonfinite=error_if_nonfinite
        )

    def manual_backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Runs the backward pass in manual optimisation: scaled as the precision needs it, with the hooks around it.

        Raises:
            MisconfigurationException: optimisation is automatic.
        """
        if self.automatic_optimization:
            raise MisconfigurationException(
                "`manual_backward` is for manual optimization. Set `self.automatic_optimization = False` in `__init__`."
            )
        self.trainer.strategy.run_backward(loss, *args, **kwargs)

    def optimizers(self, use_pl_optimizer: bool = True) -> Any:
        """The optimisers for manual optimisation: one, or a list of several.

        Args:
            use_pl_optimizer: whether they are wrapped so that their steps count and run in the precision of the run.
        """
        strategy = self.trainer.strategy
        found = strategy._lightning_optimizers if use_pl_optimizer else strategy.optimizers
        return found[0] if len(found) == 1 else list(found)

    def lr_schedulers(self) -> Any:
        """The schedulers: one, a list of several, or None."""
        schedulers = [config.scheduler for config in self.trainer.lr_scheduler_configs]
        if not schedulers:
            return None
        return schedulers[0] if len(schedulers) == 1 else schedulers

    def toggle_optimizer(self, optimizer: Optimizer | LightningOptimizer) -> None:
        """Lets only this optimiser's parameters require gradients, until :meth:`untoggle_optimizer`."""
        before: dict[nn.Parameter, bool] = {}
        for other in self.trainer.optimizers:
            for parameter in _parameters_of(other):
                before.setdefault(parameter, parameter.requires_grad)
                parameter.requires_grad = False
        for parameter in _parameters_of(optimizer):
            parameter.requires_grad = before[parameter]
        self._toggled = before

    def untoggle_optimizer(self, optimizer: Optimizer | LightningOptimizer) -> None:
        """Undoes :meth:`toggle_optimizer`."""
        for parameter, requires_grad in self._toggled.items():
            parameter.requires_grad = requires_grad
        self._toggled = {}

    @contextmanager
    def toggled_optimizer(self, optimizer: Optimizer | LightningOptimizer) -> Iterator[None]:
        """Inside, only this optimiser's parameters require gradients."""
        self.toggle_optimizer(optimizer)
        try:
            yield
        finally:
            self.untoggle_optimizer(optimizer)

    def freeze(self) -> None:
        """Lets no parameter require gradients, and puts the module into eval mode."""
        self.requires_grad_(False)
        self.eval()

    def unfreeze(self) -> None:
        """Lets every parameter require gradients, and puts the module into train mode."""
        self.requires_grad_(True)
        self.train()

    def all_gather(self, data: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """The tensors of all processes, stacked along a new first dimension; with one process the data itself.

        Args:
            data: a tensor or number, or nested collections of them; numbers become tensors.
            group: of processes; None: all.
            sync_grads: whether gradients flow back to the other processes.
        """

        def gather(item: Any) -> Any:
            if isinstance(item, (bool, int, float)):
                kind = torch.uint8 if isinstance(item, bool) else torch.int32 if isinstance(item, int) else None
                item = torch.tensor(item, dtype=kind, device=self.device)
            if not isinstance(item, Tensor):
                return item
            return self.trainer.strategy.all_gather(item, group=group, sync_grads=sync_grads)

        return pytree.tree_map(gather, data)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Prints in the first process only, as the built-in function does, above the progress bar."""
        if self.trainer.is_global_zero:
            bar = self.trainer.progress_bar_callback
            if bar is not None:
                bar.print(*args, **kwargs)
            else:
                print(*args, **kwargs)  # noqa: T201 - the program's own output

    @on_class_only
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | os.PathLike[str] | IO[bytes],
        map_location: Any = None,
        hparams_file: str | os.PathLike[str] | None = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Makes a module as it was when a checkpoint was saved: with its hyperparameters and its weights.

        Args:
            checkpoint_path: a path, an address for fsspec, or an open file.
            map_location: where tensors go, as for :func:`torch.load`.
            hparams_file: a .yaml or .csv file with the hyperparameters, for a checkpoint that has none.
            strict: whether the names of the weights must be exactly this module's (``strict_loading``, so True, by
                default).
            weights_only: whether only tensors and plain values are loaded; True unless False is asked for. Pass False
                for checkpoints that you trust and whose hyperparameters are objects.
            kwargs: arguments of ``__init__`` that take precedence over the saved ones.

        Raises:
            FileNotFoundError: there is no such file.
            CheckpointError: it is damaged, no checkpoint, or another module's.
            TypeError: called on an instance.
        """
        loaded: Self = load_module(cls, checkpoint_path, map_location, hparams_file, strict, weights_only, **kwargs)
        return loaded

    # Logging.

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str | Callable[[Any], Any] = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Logs a value.

        Args:
            name: the key; with both ``on_step`` and ``on_epoch`` it gets the suffixes ``_step`` and ``_epoch``.
            value: a number, a tensor with one element, or a metric of torchmetrics.
            prog_bar: whether the progress bar shows it.
            logger: whether the loggers get it (the default).
            on_step: whether each step's value is logged; by default in training steps.
            on_epoch: whether the epoch's value is logged; by default everywhere else.
            reduce_fx: how an epoch's values become one: mean (weighted by the batch size), sum, min or max.
            enable_graph: whether the value stays in autograd's graph.
            sync_dist: whether it is reduced over processes.
            sync_dist_group: over which.
            add_dataloader_idx: whether the key tells the loader where there are several.
            batch_size: the weight in the epoch's mean; found in the batch by default.
            metric_attribute: under which name the module holds the metric.
            rank_zero_only: whether only the first process logs it.

        Raises:
            MisconfigurationException: the hook that runs can't log, or not like this.
            ValueError: a value that is no scalar.
        """
        logbook = self._logbook
        store = None if logbook is None else logbook.store
        if store is None:
            self._cannot_log()
            return
        store.hook = self._current_fx_name
        store.log(
            name,
            value,
            (
                prog_bar,
                logger,
                on_step,
                on_epoch,
                reduce_fx,
                enable_graph,
                sync_dist,
                sync_dist_group,
                add_dataloader_idx,
                metric_attribute,
                rank_zero_only,
            ),
            batch_size,
        )

    def log_dict(
        self,
        dictionary: Mapping[str, Any],
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str | Callable[[Any], Any] = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Logs several values at once, at hardly more cost than one; the arguments are those of :meth:`log`."""
        logbook = self._logbook
        store = None if logbook is None else logbook.store
        if store is None:
            self._cannot_log()
            return
        store.hook = self._current_fx_name
        store.log_dict(
            dictionary,
            (
                prog_bar,
                logger,
                on_step,
                on_epoch,
                reduce_fx,
                enable_graph,
                sync_dist,
                sync_dist_group,
                add_dataloader_idx,
                None,
                rank_zero_only,
            ),
            batch_size,
        )

    def _cannot_log(self) -> None:
        """Says why nothing can be logged now: a warning where the code may be right, an error where it can't."""
        trainer = self._trainer
        if trainer is None:
            rank_zero_warn(
                "`self.log()` was called on a module that isn't attached to a Trainer; nothing is logged.", stacklevel=4
            )
        elif trainer.barebones:
            trainer.warn_of_barebones_log()
        else:
            raise MisconfigurationException(
                f"`self.log()` can't be used in `{self._current_fx_name}`: nothing is collected there (as in"
                " prediction)."
            )

    # The Trainer and what it knows.

    @property
    def trainer(self) -> Trainer:
        """The Trainer of the run.

        Raises:
            RuntimeError: there is none.
        """
        if self._trainer is None:
            if is_exporting(self):
                return None  # type: ignore[return-value] # TorchScript looks at every attribute, this one too
            raise RuntimeError(f"{type(self).__qualname__} is not attached to a `Trainer`.")
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Trainer | None) -> None:
        for child in self.children():
            if isinstance(child, LightningModule):
                child.trainer = trainer
        self._trainer = trainer
        self._logbook = None if trainer is None or trainer.barebones else trainer.logbook

    @property
    def automatic_optimization(self) -> bool:
        """Whether the Trainer zeroes, backpropagates and steps (or else ``training_step`` itself)."""
        return self._automatic_optimization

    @automatic_optimization.setter
    def automatic_optimization(self, automatic_optimization: bool) -> None:
        self._automatic_optimization = automatic_optimization

    @property
    def strict_loading(self) -> bool:
        """Whether a checkpoint must hold exactly this module's parameters."""
        return True if self._strict_loading is None else self._strict_loading

    @strict_loading.setter
    def strict_loading(self, strict_loading: bool) -> None:
        self._strict_loading = strict_loading

    @property
    def example_input_array(self) -> Any:
        """A batch to try ``forward`` on, for summaries and graphs."""
        return self._example_input_array

    @example_input_array.setter
    def example_input_array(self, example: Any) -> None:
        self._example_input_array = example

    @property
    def current_epoch(self) -> int:
        """The epoch of the Trainer, 0 without one."""
        return 0 if self._trainer is None else self._trainer.current_epoch

    @property
    def global_step(self) -> int:
        """The optimiser steps of the Trainer, 0 without one."""
        return 0 if self._trainer is None else self._trainer.global_step

    @property
    def global_rank(self) -> int:
        """The index of this process over all machines."""
        return 0 if self._trainer is None else self._trainer.global_rank

    @property
    def local_rank(self) -> int:
        """The index of this process on its machine."""
        return 0 if self._trainer is None else self._trainer.local_rank

    @property
    def logger(self) -> Any:
        """The first logger of the Trainer, None without one."""
        return None if self._trainer is None else self._trainer.logger

    @property
    def loggers(self) -> list[Any]:
        """The loggers of the Trainer."""
        return [] if self._trainer is None else self._trainer.loggers

    @property
    def device(self) -> torch.device:
        """The device that the module is on."""
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point format of the module."""
        return self._dtype

    @property
    def on_gpu(self) -> bool:
        """Whether the module is on a CUDA device."""
        return self._device.type == "cuda"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LightningModule:
        # What `to`, `cuda`, `half` and all the others do to a tensor, they do to this one too.
        probe = fn(torch.empty(0, dtype=self._dtype, device=self._device))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._device, self._dtype = probe.device, probe.dtype
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["_trainer"] = state["_logbook"] = None
        return state


def _parameters_of(optimizer: Optimizer | LightningOptimizer) -> Iterator[nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]
