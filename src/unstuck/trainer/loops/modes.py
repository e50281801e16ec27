"""What an evaluation must leave as it found it: train and eval mode of each module, buffers, gradients, random
state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from unstuck.messages import PossibleUserWarning, rank_zero_info, rank_zero_warn

__all__ = ["EvaluationTraces", "capture_modes", "restore_modes"]


def capture_modes(module: nn.Module) -> list[tuple[nn.Module, bool]]:
    """The mode of every module, to be put back by :func:`restore_modes`."""
    return [(child, child.training) for child in module.modules()]


def restore_modes(modes: list[tuple[nn.Module, bool]]) -> None:
    """Puts each module into the mode that it had. Modules that came since keep theirs."""
    for child, training in modes:
        child.training = training


class EvaluationTraces:
    """Notices what a validation within a fit changes of the training.

    Args:
        module: the module, in eval mode already.
        loaders: how many loaders there are. To begin with each it draws a seed or two, with whatever module.
    """

    def __init__(self, module: nn.Module, loaders: int = 1) -> None:
        self._versions = [
            (name, tensor, tensor._version) for name, tensor in _state(module) if not tensor.is_inference()
        ]
        self._rng = torch.random.get_rng_state()
        self._seeds = 2 * (loaders - 1)

    def report(self, said: set[str]) -> None:
        """Tells, once per run, what was touched: parameters and buffers by a warning, the random state by an info
        line.
        """
        changed = [name for name, tensor, version in self._versions if tensor._version != version]
        if changed:
            shown = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
            self._once(
                f"The validation changed state of the model that training uses: {shown}. With and without validation"
                " the training now"
                " differs.",
                said,
                warn=True,
            )
        if not _is_reached_by_seeds(self._rng, torch.random.get_rng_state(), self._seeds):
            self._once(
                "The validation drew from torch's global random numbers, so training goes on with others than it"
                " would have without"
                " validation. `Trainer(isolate_validation=True)` puts the random state back after each validation.",
                said,
                warn=False,
            )

    @staticmethod
    def _once(message: str, said: set[str], warn: bool) -> None:
        if message not in said:
            said.add(message)
            if warn:
                rank_zero_warn(message, PossibleUserWarning)
            else:
                rank_zero_info(message)


def _is_reached_by_seeds(before: torch.Tensor, after: torch.Tensor, most: int) -> bool:
    """Whether nothing but the seeds of data loaders, ``most`` of them at most, was drawn between two random states."""
    if torch.equal(before, after):
        return True
    generator = torch.Generator().set_state(before)
    for _ in range(most):
        torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator)
        if torch.equal(generator.get_state(), after):
            return True
    return False


def _state(module: nn.Module) -> list[tuple[str, Any]]:
    return [*module.named_parameters(), *module.named_buffers()]
