"""The optimiser as a module's code sees it: its steps are those of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from torch.optim import Optimizer

from unstuck.errors import MisconfigurationException
from unstuck.profilers.actions import profiled
from unstuck.trainer.optimization import AutomaticStep

if TYPE_CHECKING:
    from unstuck.trainer.run import Run

__all__ = ["LightningOptimizer"]


def _forwarded(name: str) -> Any:
    """An attribute that is read and written in the wrapped optimiser."""

    def read(wrapper: LightningOptimizer) -> Any:
        return getattr(wrapper.optimizer, name)

    def write(wrapper: LightningOptimizer, value: Any) -> None:
        setattr(wrapper.optimizer, name, value)

    return property(read, write)


class LightningOptimizer:
    """An optimiser as ``self.optimizers()`` and ``optimizer_step`` see it: its step runs in the run's precision.

    Everything but :meth:`step` and :meth:`toggle_model` is the wrapped optimiser's.

    Args:
        optimizer: the optimiser to wrap.
    """

    param_groups = _forwarded("param_groups")
    state = _forwarded("state")
    defaults = _forwarded("defaults")

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._run: Run | None = None
        self._before_step: Callable[[Optimizer], None] | None = None
        self._counts_steps = False
        # An instance of the optimiser's own class too, for schedulers and whoever asks with isinstance.
        kind = type(optimizer)
        self.__class__ = type(f"Lightning{kind.__name__}", (LightningOptimizer, kind), {})

    @property
    def optimizer(self) -> Optimizer:
        """The wrapped optimiser."""
        return self._optimizer

    def attach(self, run: Run, before_step: Callable[[Optimizer], None], counts_steps: bool) -> None:
        """Connects the optimiser to a run.

        Args:
            run: whose precision and progress.
            before_step: hooks and clipping between gradients and step.
            counts_steps: whether a step counts as one of the run's here (manual optimisation) or where the batch is
                run.
        """
        self._run, self._before_step, self._counts_steps = run, before_step, counts_steps

    def detach(self) -> None:
        """Ends the connection; steps are the wrapped optimiser's own again."""
        self._run = self._before_step = None

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Steps the optimiser.

        Args:
            closure: computes the gradients anew and returns the loss; needed in ``optimizer_step``, optional in manual
                optimisation.
            kwargs: handed to the wrapped optimiser's ``step``.

        Returns:
            What the wrapped optimiser's ``step`` returns.

        Raises:
            MisconfigurationException: the closure can't be called.
        """
        if closure is not None and not callable(closure):
            raise MisconfigurationException(f"`optimizer.step(closure=...)` needs something callable, got {closure!r}.")
        run, before_step = self._run, self._before_step
        if run is None or before_step is None:
            return self._optimizer.step(closure, **kwargs)
        if isinstance(closure, AutomaticStep) and run.precision.scaler is None:
            closure.prepares_step = True
            return self._optimizer.step(cast(Callable[[], float], closure), **kwargs)
        if not self._counts_steps:
            return run.precision.optimizer_step(self._optimizer, closure, before_step, **kwargs)
        step = profiled(run.profiler, "optimizer_step", run.precision.optimizer_step)
        result = step(self._optimizer, closure, before_step, **kwargs)
        run.progress.global_step += 1
        return result

    @contextmanager
    def toggle_model(self, sync_grad: bool = True) -> Iterator[None]:
        """Inside, only this optimiser's parameters require gradients.

        Args:
            sync_grad: whether gradients are exchanged between processes inside.
        """
        if self._run is None:
            raise MisconfigurationException("`toggle_model` works only while the optimizer is part of a fit.")
        module = self._run.module
        module.toggle_optimizer(self)
        try:
            yield
        finally:
            module.untoggle_optimizer(self)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients."""
        self._optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters to the wrapped optimiser."""
        self._optimizer.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimiser's state."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the wrapped optimiser's state."""
        self._optimizer.load_state_dict(state_dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_optimizer"], name)

    def __repr__(self) -> str:
        return f"Lightning{self._optimizer!r}"
