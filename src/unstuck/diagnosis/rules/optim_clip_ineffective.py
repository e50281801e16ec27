"""optim.clip-ineffective: gradients are clipped where that can't act on the step: after it, before backward, elsewhere.

Clipping changes gradients in place, so it acts only between the last backward pass and the step. After the step the
gradients have been taken; before backward there are none, or those of the step before; on other parameters than the
optimiser's (a copy of the model, a generator of parameters that was used up) it changes nothing that is used.

Found by looking, at every call, whether a backward pass has come since the optimiser's last step, and whether the
clipped parameters are any optimiser's. It is reported only if the limit would have acted: if norms exceed it. A call
with an infinite limit, which only measures the norm, is passed over, and so is a second call beside one that acts.

A statement that limits gradients out of place, ``p.grad.clamp(-1, 1)``, clips nothing at all: it is found in the
program's text, and reported where steps are found to be too large.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.rules import optim_exploding_gradient, optim_lr_too_high
from unstuck.diagnosis.wiring import connections
from unstuck.findings import Finding, Severity, Where
from unstuck.record.gradients import TOTAL, ClipRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "optim.clip-ineffective"

FEWEST = 8
"""Calls after which it is no accident of the start."""

FEWEST_BROKEN = 4
"""The same for a run that an incident has ended."""

SHARE = 0.05
"""Share of steps whose norm must exceed the limit for its absence to matter."""


def rule(recording: Recording) -> list[Finding]:
    """One finding per line that clips in vain."""
    found = []
    # what clipping was to prevent may end the run early
    fewest = FEWEST_BROKEN if recording.incidents else FEWEST
    for clip in recording.clips:
        if clip.calls < fewest or not math.isfinite(clip.limit):
            continue
        how = _how(clip, fewest)
        if how is None or _another_acts(recording, clip):
            continue
        over, norm = _exceeding(recording, clip)
        if over >= SHARE:
            severity = Severity.ERROR if recording.incidents else Severity.WARNING
            found.append(_finding(clip, how, over, norm, severity))
    return found or _dropped(recording)


def _dropped(recording: Recording) -> list[Finding]:
    """Gradients that are limited out of place, in a run whose steps are too large."""
    record = connections(recording)
    lines = [item for item in record.statements if item.kind == "dropped_clip"] if record is not None else []
    if not lines:
        return []
    steps = optim_exploding_gradient.rule(recording) or optim_lr_too_high.rule(recording)
    if not steps:
        return []
    return [
        Finding(
            CODE,
            Severity.ERROR,
            f"the limited gradient is a new tensor that is put nowhere, so nothing is clipped, and {steps[0].summary}",
            Where(file=lines[0].file, line=lines[0].line),
            {"statement": lines[0].text.strip(), **steps[0].evidence},
            "clip in place: p.grad.clamp_(...), or torch.nn.utils.clip_grad_value_ and clip_grad_norm_",
        )
    ]


def _how(clip: ClipRecord, fewest: int) -> str | None:
    """Why a line can't act, None if it can or if that isn't certain."""
    if clip.empty >= clip.calls - 1:
        return "empty"
    if clip.bare >= clip.calls - 1 and clip.strange >= clip.calls - 1:
        return "strange"
    # the call before the first step is fresh wherever the line stands, if a backward pass came before
    if clip.stale >= fewest - 1 and clip.stale >= clip.calls - 1:
        return "before" if clip.cleared >= clip.stale - 1 else "after"
    return None


def _another_acts(recording: Recording, clip: ClipRecord) -> bool:
    return any(
        other is not clip
        and other.fresh > other.stale
        and (not clip.optimizers or set(other.optimizers) & set(clip.optimizers))
        for other in recording.clips
    )


def _exceeding(recording: Recording, clip: ClipRecord) -> tuple[float, float]:
    """(share of steps whose gradient exceeds the limit, largest norm)."""
    taken = clip.optimizers or list(range(len(recording.optimizers)))
    norms = [value for index in taken for _, value in recording.optimizers[index].norms.highs(TOTAL)]
    if clip.kind == "value":
        # an element is at most as large as the whole, and rarely much smaller than its mean square
        sizes = [sum(recording.optimizers[index].sizes) for index in taken]
        norms = [value / math.sqrt(max(1, max(sizes, default=1))) for value in norms]
    if not norms:
        return 0.0, 0.0
    return sum(value > clip.limit for value in norms) / len(norms), max(norms)


_SAID = {
    "after": "gradients are clipped after the step that takes them",
    "before": "gradients are clipped before backward computes them",
    "strange": "clipping is given parameters without gradients that no optimizer holds",
    "empty": "clipping is given no parameters (a generator that was used up?)",
}
_REMEDY = {
    "after": "move the clipping between loss.backward() and the step",
    "before": "move the clipping between loss.backward() and the step",
    "strange": "give it the parameters of the model that is trained: those that the optimizer got",
    "empty": "give it model.parameters() anew at every call, or a list",
}


def _finding(clip: ClipRecord, how: str, over: float, norm: float, severity: Severity) -> Finding:
    return Finding(
        CODE,
        severity,
        f"{_SAID[how]}: the limit of {clip.limit:g} never acts, although {100 * over:.0f} % of steps exceed it",
        at_line(clip.at),
        {"limit": clip.limit, "largest norm": norm, "share above the limit": over, "calls": clip.calls},
        _REMEDY[how],
    )
