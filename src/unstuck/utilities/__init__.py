"""The helpers of Lightning's ``utilities`` that users import, under the same names. Nothing is defined here;
:mod:`unstuck.utilities.model_summary` is a module of its own.
"""

from __future__ import annotations

from unstuck.measure.gradient_norms import grad_norm
from unstuck.messages import rank_zero_debug, rank_zero_info, rank_zero_only, rank_zero_warn
from unstuck.trainer.data.combined import CombinedLoader
from unstuck.trainer.data.seed import isolate_rng
from unstuck.trainer.data.transfer import move_data_to_device
from unstuck.trainer.hparams import AttributeDict

__all__ = [
    "AttributeDict",
    "CombinedLoader",
    "grad_norm",
    "isolate_rng",
    "move_data_to_device",
    "rank_zero_debug",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
]
