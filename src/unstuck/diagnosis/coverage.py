"""What the traced steps of a run could not show of units and layers, and why: silence is no approval."""

from __future__ import annotations

from collections.abc import Sequence

from unstuck.record.anatomy import Anatomy

__all__ = ["had_nothing_to_see", "unseen"]

_NONE = ": the model has no "
_SHORT = ": the run was too short "


def unseen(anatomies: Sequence[Anatomy]) -> list[str]:
    """One phrase for each check of units and layers that had nothing to look at.

    Args:
        anatomies: of a run, in their order.
    """
    if not anatomies:
        return []
    ops = [op for anatomy in anatomies for _, op in anatomy.forward()]
    kinds = {op.units.kind for op in ops if op.units is not None}
    phrases = []
    if "rectifier" not in kinds:
        phrases.append(f"dead units{_NONE}ReLU-like units")
    if not kinds & {"sigmoid", "tanh"}:
        phrases.append(f"saturated units{_NONE}sigmoid- or tanh-like units")
    if not any(op.name.endswith("_norm") for op in ops):
        phrases.append(f"normalisation{_NONE}normalisation layer")
    if anatomies[0].step > 1:
        phrases.append(f"initialisation: watched from step {anatomies[0].step} on only")
    elif len(anatomies) < 2:
        phrases.append(f"units that begin alike{_SHORT}for a second look")
    return phrases


def had_nothing_to_see(phrase: str) -> bool:
    """Whether a check wasn't made only because the model has nothing of the kind, or the run not enough steps."""
    return _NONE in phrase or _SHORT in phrase
