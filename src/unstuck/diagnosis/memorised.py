"""Whether a model has learnt a few batches by heart: decided by what their data and the loss allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Memory", "judge_memory"]

LEARNT = 0.95
"""Share of the way from the best constant prediction to the floor after which a batch counts as memorised."""

LEARNT_WITH_ACCURACY = 0.75
"""The same where every sample that can be right is."""

NOTHING = 0.05
"""Share of the loss below which a difference between two losses is none."""

NO_DIFFERENCE = 1e-6
"""Share of a loss by which it varies where it doesn't depend on the predictions at all."""

ALL_BUT_GONE = 1e-3
"""Share of the first loss at which one that stands still has arrived, where the floor is unknown."""

LEVEL = 0.8
"""Share of itself at which a loss that is near zero is left by the last quarter of the steps if it levels off."""

_PATIENCE, _LEAST_PATIENCE = 20, 3000
"""Times the steps so far that may be proposed, and steps that always may: more of them means that there is no hope."""

_WARM = 50
"""Steps after which a loss above that of the start isn't on its way any more: the steps threw it up there."""


@dataclass(frozen=True)
class Memory:
    """A verdict on an overfit test.

    Attributes:
        verdict: ``memorised``, ``not memorised`` or ``undecided``.
        first: mean loss of the batches before the first step.
        last: at the end.
        steps: optimiser steps.
        constant: loss of the best constant prediction, None if unknown.
        floor: loss of the best prediction at all, None if unknown.
        learnt: share of the way from ``constant`` to ``floor``, None where those are unknown.
        accuracy: share of samples that are right, None where the task is no classification.
        attainable: the largest accuracy that the labels allow: equal inputs may carry different labels.
        more_steps: how many more would settle it, where it is undecided and the loss still falls; where the floor is
            unknown, at least so many. None beside ``undecided``: the loss stands still, and its floor is unknown.
        sentence: all of it in words.
    """

    verdict: Literal["memorised", "not memorised", "undecided"]
    first: float
    last: float
    steps: int
    constant: float | None
    floor: float | None
    learnt: float | None
    accuracy: float | None
    attainable: float | None
    more_steps: int | None
    sentence: str


def judge_memory(
    curve: Sequence[float],
    steps: int,
    constant: float | None = None,
    floor: float | None = None,
    accuracy: float | None = None,
    attainable: float | None = None,
    evaluated: float | None = None,
    ascends: bool = False,
    alike: bool = False,
    faulty: bool = False,
    at_chance: str = "",
) -> Memory:
    """Judge an overfit test.

    Args:
        curve: mean loss of all batches, once per pass over them, the first before any step.
        steps: optimiser steps that were taken.
        constant: loss of the best constant prediction.
        floor: loss of the best prediction at all. A loss clearly below it shows that it isn't: then both are unknown.
        accuracy: share of samples that are right at the end.
        attainable: the largest that is possible.
        evaluated: loss at the end in evaluation mode, without dropout; the better of the two counts.
        ascends: the loss has been found to have the wrong sign, so that however it falls nothing is learnt.
        alike: there is a single sample, or all targets are equal, so that a constant prediction is the best one.
        faulty: the diagnosis has found an error. A loss that is no better than that of a constant prediction, or that
            stands still and whose floor is unknown, is then stuck.
        at_chance: which term of the loss has hardly been learnt, in words; a total that has fallen may hide it.

    Raises:
        ValueError: an empty curve.
    """
    if not curve:
        raise ValueError("an overfit test without a single loss can't be judged")
    first, last = curve[0], curve[-1]
    reached = min(last, evaluated) if evaluated is not None and math.isfinite(evaluated) else last
    if _is_undercut(first, constant, floor, reached):
        # a model can't do better than a constant where all want the same: the search ended too early
        constant = floor = reached if alike else None
    known = constant is not None and floor is not None
    top, bottom = _range(first, constant, floor)
    learnt = (top - reached) / (top - bottom) if math.isfinite(reached) and top > bottom else None
    right = accuracy is not None and attainable is not None and accuracy >= attainable - 1e-9
    more = None
    verdict: Literal["memorised", "not memorised", "undecided"]
    if not math.isfinite(last) or ascends or (not alike and _nothing_to_learn(first, constant, floor)):
        verdict = "not memorised"
    elif not known:
        verdict, more = _by_course(curve, steps, reached, right)
        if at_chance and verdict == "memorised":
            verdict = "undecided"
        if verdict == "undecided" and more is None and faulty:
            verdict = "not memorised"
    elif learnt is None:  # it began at the floor
        verdict = "memorised" if right or reached <= bottom + NOTHING * abs(bottom) else "not memorised"
    elif learnt >= LEARNT or (right and learnt >= LEARNT_WITH_ACCURACY):
        verdict = "memorised"
    else:
        more = None if faulty and learnt <= NOTHING else _more_steps(curve, steps, bottom, top)
        verdict = "undecided" if more is not None else "not memorised"
    memory = Memory(
        verdict, first, last, steps, constant, floor, learnt if known else None, accuracy, attainable, more, ""
    )
    return Memory(**{**vars(memory), "sentence": _told(memory, evaluated, alike, "" if known else at_chance)})


def _is_undercut(first: float, constant: float | None, floor: float | None, reached: float) -> bool:
    """Whether a model scores clearly below what was taken for the lowest loss, so that it isn't that.

    A floor that is all but zero beside the first loss may be found too high by as little.
    """
    if floor is None or not math.isfinite(reached):
        return False
    way = abs(constant - floor) if constant is not None else 0.0
    small = ALL_BUT_GONE * abs(first) if math.isfinite(first) else 0.0
    return reached < floor - max(NOTHING * max(way, abs(floor)), small)


def _by_course(
    curve: Sequence[float], steps: int, reached: float, right: bool
) -> tuple[Literal["memorised", "not memorised", "undecided"], int | None]:
    """The verdict, and the steps that would settle it, where only the course of the loss is known.

    A loss that has fallen and stands still may have arrived or be stuck: that can't be told without its floor.
    """
    first = curve[0]
    if not math.isfinite(first):
        return ("memorised" if right else "undecided"), None
    more = _more_steps(curve, steps, min(0.0, first, reached), first)
    still = more is None or reached < 0
    fallen = first - reached
    near = reached >= 0 and fallen >= LEARNT * first
    if near and (right or reached <= ALL_BUT_GONE * first or not (still or _levels_off(curve))):
        return "memorised", None
    if right and fallen >= LEARNT_WITH_ACCURACY * abs(first):
        return "memorised", None
    if not still and not near:
        return "undecided", more
    return ("undecided" if fallen > NOTHING * abs(first) else "not memorised"), None


def _nothing_to_learn(first: float, constant: float | None, floor: float | None) -> bool:
    """Whether no prediction scores better than a constant one, although targets differ, or than any other."""
    if constant is None or floor is None:
        return False
    if max(abs(first - floor), abs(constant - floor)) <= NO_DIFFERENCE * abs(first):
        return True
    return floor > NOTHING * max(abs(first), abs(constant)) and constant - floor < NOTHING * abs(constant)


def _range(first: float, constant: float | None, floor: float | None) -> tuple[float, float]:
    """Where learning begins and where it ends."""
    bottom = floor if floor is not None else min(0.0, first)
    if constant is not None and constant > bottom + 1e-9 * max(1.0, abs(bottom)):
        return constant, bottom
    return first, bottom  # every target is the same, or nothing is known of them


def _more_steps(curve: Sequence[float], steps: int, floor: float, top: float) -> int | None:
    """Steps after which the batches would be memorised if the loss goes on falling as it does; None without hope."""
    count = len(curve)
    if count < 8 or steps < 8:
        return max(50, 10 * steps)  # too few steps to tell
    quarter = max(2, count // 4)
    before = _middle(curve[-2 * quarter : -quarter]) - floor
    after = _middle(curve[-quarter:]) - floor
    if not (before > 0 and after > 0 and after < before):
        return None
    if steps >= _WARM and after + floor > max(curve[0], top):
        return None
    wanted = (1 - LEARNT) * (top - floor)
    passes = quarter * math.log(wanted / after) / math.log(after / before) if after > wanted else quarter
    proposed = math.ceil(max(passes, 1) * steps / max(1, count - 1))
    return proposed if proposed <= max(_PATIENCE * steps, _LEAST_PATIENCE) else None


def _levels_off(curve: Sequence[float]) -> bool:
    """Whether a loss hardly falls any more, measured by itself: a large term is gone, and one that stands is left."""
    quarter = len(curve) // 4
    return quarter >= 2 and _middle(curve[-quarter:]) > LEVEL * _middle(curve[-2 * quarter : -quarter])


def _middle(values: Sequence[float]) -> float:
    ordered = sorted(value for value in values if math.isfinite(value))
    return ordered[len(ordered) // 2] if ordered else math.inf


def _told(memory: Memory, evaluated: float | None, alike: bool, at_chance: str) -> str:
    parts = [f"loss {memory.first:.4g} -> {memory.last:.4g} in {_counted(memory.steps)}"]
    if evaluated is not None and abs(evaluated - memory.last) > 0.1 * max(abs(memory.last), 1e-3):
        parts.append(f"{evaluated:.4g} in evaluation mode")
    if memory.accuracy is not None:
        best = memory.attainable
        limit = f" of at most {100 * best:.1f} %" if best is not None and best < 1 else ""
        parts.append(f"accuracy {100 * memory.accuracy:.1f} %{limit}")
    known = memory.constant is not None and memory.floor is not None
    if alike or _is_enough(memory, evaluated):
        same = f"score {memory.constant:.4g} too" if known else "do as well"
        parts.append(
            f"but a constant prediction would {same} (a single sample, or equal targets): give several samples with "
            "different targets to see whether inputs are told apart"
        )
    elif at_chance:
        parts.append(at_chance)
    elif memory.verdict == "undecided" and memory.more_steps is None:
        where = "this" if memory.last < 0 else "where it stands"
        parts.append(f"how far it can fall isn't known, so {where} may be the end or not")
    elif not known:
        unknown = "what a constant prediction would score"
        parts.append(f"{'how far it can fall' if memory.verdict == 'undecided' else unknown} isn't known")
    else:
        parts.append(f"a constant prediction would score {memory.constant:.4g}")
    if not alike and _nothing_to_learn(memory.first, memory.constant, memory.floor):
        parts.append(
            "no prediction can score better than a constant one (equal inputs with different targets, or a loss that "
            "compares each sample with all targets or ignores them)"
        )
    elif memory.floor is not None and abs(memory.floor) > 1e-3 * max(abs(memory.first), 1e-6):
        parts.append(f"no prediction can score below {memory.floor:.4g}")
    head: str = memory.verdict
    if memory.more_steps is not None:
        head = f"undecided, run {_counted(memory.more_steps, 'more ') if known else 'more steps'}"
    return f"{head}: {', '.join(parts)}"


def _is_enough(memory: Memory, evaluated: float | None) -> bool:
    """Whether the best constant prediction scores as well as the model that has memorised the batches."""
    if memory.verdict != "memorised" or memory.constant is None:
        return False
    reached = memory.last if evaluated is None or not math.isfinite(evaluated) else min(memory.last, evaluated)
    return memory.constant <= reached + NO_DIFFERENCE * abs(memory.first)


def _counted(steps: int, more: str = "") -> str:
    return f"{steps} {more}step" if steps == 1 else f"{steps} {more}steps"
