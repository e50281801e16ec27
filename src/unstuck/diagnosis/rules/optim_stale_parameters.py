"""optim.stale-parameters: the optimiser holds tensors that are no longer the model's.

An optimiser keeps the very tensors that it was given. A layer that is replaced afterwards, weights that are set as new
``nn.Parameter`` objects, a model that is built again or copied: the new parameters get gradients and never move, the
old ones are stepped and used by nobody.

Found by looking, pass by pass, at which parameters are a model's, which get a gradient, and which an optimiser holds:
reported are parameters that get gradients, are held by no optimiser and never change, while an optimiser that steps
holds one of the same name that is no longer the model's, or that gets no gradient since the new one does.
"""

from __future__ import annotations

from unstuck.diagnosis.wiring import common_module, connections, first_of_its_own, orphans, place, told
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.connections import Connections, HolderRecord, ParameterRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "replaced", "rule"]

CODE = "optim.stale-parameters"


def rule(recording: Recording) -> list[Finding]:
    """One finding for all parameters that were replaced behind an optimiser's back."""
    record = connections(recording)
    pairs = [] if record is None else replaced(record)
    if record is None or not pairs:
        return []
    new = [item for item, _, _ in pairs]
    holder = pairs[0][2]
    module = common_module([item.path.rpartition(".")[0] for item in new])
    chain = _replaced_at(record, new, holder)
    where = place(chain or holder.made_at, module, new[0].path if len(new) == 1 else None)
    keeper = f"{holder.kind} (line {holder.made_at[-1].line})" if holder.made_at else holder.kind
    return [
        Finding(
            CODE,
            Severity.ERROR,
            f"{told(new, module)} were made after the optimizer that should train them: {keeper} still holds the "
            "tensors that they replaced, so they get gradients and never change",
            where,
            {
                "parameters": [item.path for item in new[:8]],
                "count": len(new),
                "numbers": sum(item.size for item in new),
                "passes with a gradient": new[0].fed,
                "steps": holder.steps,
                "optimizer made at line": holder.made_at[-1].line if holder.made_at else None,
            },
            "construct the optimizer after the model has its final parameters, or fill the old ones in place "
            "(with torch.no_grad(): layer.weight.copy_(...))",
        )
    ]


def replaced(record: Connections) -> list[tuple[ParameterRecord, ParameterRecord, HolderRecord]]:
    """(new parameter, the one that it stands for, the optimiser that holds that one)."""
    found = []
    for new in orphans(record):
        if new.home == "bare":
            continue
        for old in record.parameters:
            if old is new or not _succeeds(new, old):
                continue
            holder = next(
                (
                    record.holders[number]
                    for number in old.held_by
                    if number < new.after and record.holders[number].last_step >= (new.last_fed or 0)
                ),
                None,
            )
            if holder is not None and holder.steps:
                found.append((new, old, holder))
                break
    return found


def _succeeds(new: ParameterRecord, old: ParameterRecord) -> bool:
    """Whether ``new`` has taken the place of ``old``."""
    unused = old.last_fed is None or (new.first_fed is not None and old.last_fed < new.first_fed)
    if not unused or (old.present and old.shape != new.shape):
        return False
    if new.name == old.name:
        return True
    # weight normalisation and the like put other parameters in the place of a weight
    owner = old.name.rpartition(".")[0]
    inside = new.name.rpartition(".")[0]
    return not old.present and bool(owner) and (inside == owner or inside.startswith(f"{owner}."))


def _replaced_at(record: Connections, new: list[ParameterRecord], holder: HolderRecord) -> tuple[Frame, ...]:
    chains = [item.made_at or record.modules.get(item.path.rpartition(".")[0], ()) for item in new]
    known = [chain for chain in chains if chain]
    return first_of_its_own(known[0], holder.made_at) if known else ()
