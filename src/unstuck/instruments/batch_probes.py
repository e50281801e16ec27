"""What is told from the samples that were kept, at the end of a run: by fits, comparisons and a copy of the model."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import torch

from unstuck.instruments.batch_tables import Kept, Variant
from unstuck.measure import rng
from unstuck.measure.association import (
    linear_fit,
    nearest,
    skill_of_neighbours,
    standardised,
    word_counts,
)
from unstuck.measure.fingerprints import fingerprints
from unstuck.places import is_user_file
from unstuck.program.attributes import own_attributes
from unstuck.record.batches import IndexPart, PairingProbe, ScaleProbe

__all__ = ["Arrays", "count_turned", "depends_on_tokens", "probe_pairing", "probe_scale"]

_SAMPLES = 600
_UNIQUE = 0.9
"""Part of an array's rows that differ from all others, from which on a place in it is a sample's own."""

_FEWEST = 64
_MOVES = (-3, -2, -1, 1, 2, 3)
_ROUNDS = 8
"""Random pairings that the skill of chance is measured with."""

_NAMES = 64
_Pairing = tuple[str, str, torch.Tensor | None, torch.Tensor]
"""What a pairing is, the arrays that it is made of, the samples that have a partner (None for all), the targets."""
_SHIFT = 2
_IMAGES = 20
_LIKE = 0.25
"""Part of an image's variance below which a difference counts as none."""

_PARAMETERS = 20_000_000


class Arrays:
    """Arrays that the program holds under a name: weak references, so that nothing is kept alive."""

    def __init__(self) -> None:
        self._found: dict[str, ReferenceType[Any]] = {}

    def look(self, frame: FrameType | None, dataset: Any) -> None:
        """Find arrays in the user's frames from ``frame`` outwards, and among the attributes of a dataset."""
        for name, value in (own_attributes(dataset) or {}).items():
            self._take(f"self.{name}", value)
            if isinstance(value, (list, tuple)):
                for index, item in enumerate(value[:8]):
                    self._take(f"self.{name}[{index}]", item)
        while frame is not None:
            if is_user_file(frame.f_code.co_filename):
                for name, value in list(frame.f_locals.items()):
                    self._take(name, value)
            frame = frame.f_back
        main = sys.modules.get("__main__")
        for name, value in list(getattr(main, "__dict__", {}).items()):
            self._take(name, value)

    def _take(self, name: str, value: Any) -> None:
        if len(self._found) >= _NAMES or not isinstance(value, (torch.Tensor, np.ndarray)):
            return
        if value.ndim and len(value) >= _FEWEST:
            self._found.setdefault(name, ref(value))

    def tables(self) -> dict[str, torch.Tensor]:
        """Those that still live, on the CPU."""
        found = {}
        for name, weak in self._found.items():
            value = weak()
            if isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.dtype != np.uint16:
                found[name] = torch.from_numpy(np.ascontiguousarray(value))
            elif isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout is torch.strided:
                found[name] = value.detach()
        return found


def _prepared(rows: torch.Tensor, tokens: bool) -> torch.Tensor:
    return standardised(word_counts(rows) if tokens else rows)


def probe_scale(kept: Kept, tokens: bool) -> ScaleProbe | None:
    """A linear model on standardised inputs, fitted to half of the samples that were kept."""
    tables = kept.tables()
    if tables is None:
        return None
    rows, targets = tables[0][:_SAMPLES], tables[1][:_SAMPLES]
    fit = linear_fit(_prepared(rows, tokens), targets, kept.classes)
    return None if fit is None else ScaleProbe(rows.shape[0], fit.loss, fit.skill)


def probe_pairing(kept: Kept, tokens: bool, arrays: Mapping[str, torch.Tensor]) -> PairingProbe | None:
    """Whether targets can be told from inputs as they are paired, or as they could be.

    Other pairings: targets moved on by a few samples in the dataset's order, and the targets that stand in the
    program's own arrays beside the same inputs.

    Args:
        kept: samples as they were received.
        tokens: whether inputs are token ids.
        arrays: the program's arrays by name.
    """
    tables = kept.tables()
    if tables is None or tables[0].shape[0] < _FEWEST:
        return None
    rows, targets = tables[0][:_SAMPLES], tables[1][:_SAMPLES]
    features = _prepared(rows, tokens)
    if features.shape[1] == 0:
        return None
    near = nearest(features)

    def skill(of: torch.Tensor) -> float:
        fit = linear_fit(features, of, kept.classes)
        return max(skill_of_neighbours(near, of, kept.classes), fit.skill if fit is not None else 0.0)

    probe = PairingProbe(rows.shape[0], skill(targets))
    generator = torch.Generator().manual_seed(0)
    for _ in range(_ROUNDS):
        probe.noise = max(probe.noise, skill(targets[torch.randperm(len(targets), generator=generator)]))
    others = [*_moved(kept, rows, targets), *_as_they_stand(kept, rows, targets, arrays)]
    for pairing, named, used, other in others:
        if used is None:
            reached = skill(other)
        elif int(used.sum()) >= _FEWEST:
            part = _prepared(rows[used], tokens)
            reached = 0.0
            if part.shape[1]:
                fit = linear_fit(part, other[used], kept.classes)
                neighbours = skill_of_neighbours(nearest(part), other[used], kept.classes)
                reached = max(neighbours, fit.skill if fit is not None else 0.0)
        else:
            continue
        if probe.other is None or reached > probe.other:
            probe.other, probe.pairing, probe.named = reached, pairing, named
    return probe


def _moved(kept: Kept, rows: torch.Tensor, targets: torch.Tensor) -> list[_Pairing]:
    """Targets of the samples a few indices away."""
    indices = kept.indices[: len(targets)]
    if len(indices) != len(targets):
        return []
    place = {index: row for row, index in enumerate(indices)}
    found: list[_Pairing] = _in_other_orders(place, indices, targets)
    if _follow_on(rows, indices):
        return found  # the samples before and after hold a part of a sample, and so of its target
    for move in _MOVES:
        at = [place.get(index + move, -1) for index in indices]
        used = torch.tensor([row >= 0 for row in at])
        other = targets[torch.tensor(at).clamp_min(0)]
        found.append((f"moved by {move}", "", used, other))
    return found


def _in_other_orders(place: dict[int, int], indices: list[int], targets: torch.Tensor) -> list[_Pairing]:
    """Targets in the order of names (1, 10, 11, 2, ...) where inputs have that of numbers, or reversed."""
    count = max(indices) + 1
    if count > 4 * len(indices):
        return []
    orders: dict[str, list[int]] = {"from the last to the first": list(range(count - 1, -1, -1))}
    for start in (0, 1):
        names = sorted(range(count), key=lambda index: str(index + start))
        back = [0] * count
        for position, index in enumerate(names):
            back[index] = position
        orders[f"in the order of names, from {start} on"] = names
        orders[f"in the order of numbers, from {start} on"] = back
    found: list[_Pairing] = []
    for name, order in orders.items():
        at = [place.get(order[index], -1) for index in indices]
        used = torch.tensor([row >= 0 for row in at])
        found.append((name, "", used, targets[torch.tensor(at).clamp_min(0)]))
    return found


def _follow_on(rows: torch.Tensor, indices: list[int]) -> bool:
    """Whether samples with neighbouring indices belong together, as windows of a series or frames of a film do."""
    place = {index: row for row, index in enumerate(indices)}
    pairs = [(row, place[index + 1]) for index, row in place.items() if index + 1 in place][:100]
    if len(pairs) < 16:
        return True  # nothing is known of them
    values = [set(row.tolist()) for row in rows]
    if sum(len(item) for item in values) < 0.5 * rows.numel():
        return True  # few different values: what is shared says nothing
    shared = sum(len(values[a] & values[b]) for a, b in pairs) / sum(len(values[a]) for a, _ in pairs)
    features = standardised(rows)
    steps = torch.tensor([float((features[a] - features[b]).norm()) for a, b in pairs]).median()
    apart = torch.tensor([float((features[a] - features[(b + 37) % len(rows)]).norm()) for a, b in pairs]).median()
    return shared > 0.1 or float(steps) < 0.8 * float(apart)


def _as_they_stand(
    kept: Kept, rows: torch.Tensor, targets: torch.Tensor, arrays: Mapping[str, torch.Tensor]
) -> list[_Pairing]:
    """Targets that stand in the program's arrays at the places at which the inputs stand in others of its arrays."""
    wanted = fingerprints(rows)
    found: list[_Pairing] = []
    labels = {
        name: array
        for name, array in arrays.items()
        if not array.is_complex() and array.numel() == len(array) * targets.shape[1]
    }
    for name, array in arrays.items():
        flat = array.reshape(len(array), -1)
        step = -(-flat.shape[1] // max(1, rows.shape[1]))
        flat = flat[:, ::step]
        if flat.shape[1] != rows.shape[1] or array.is_complex() or len(array) > 200_000:
            continue
        places = {number: place for place, number in enumerate(fingerprints(flat.to(torch.float32)))}
        if len(places) < _UNIQUE * len(array):
            continue  # where an input stands several times, which of its targets was meant can't be told
        at = [places.get(number, -1) for number in wanted]
        used = torch.tensor([place >= 0 for place in at])
        if int(used.sum()) < _FEWEST:
            continue
        own = [number for number, place in zip(wanted, at, strict=True) if place >= 0]
        if len(set(own)) < _UNIQUE * len(own):
            continue  # ids that come again and again: any numbers that hold each of them once would tell them apart
        for label, values in labels.items():
            if len(values) != len(array) or label == name or len(values) > 200_000:
                continue
            table = values.reshape(len(values), -1).to(torch.float32)
            if not _same_values(table, targets, kept.classes):
                continue  # these aren't the targets in another order
            other = table[torch.tensor(at).clamp_min(0)]
            if bool((other[used] == targets[used]).all()):
                return []  # that is how they were paired
            found.append(("as they stand", f"{name} with {label}", used, other))
    return found


def _same_values(table: torch.Tensor, targets: torch.Tensor, classes: bool) -> bool:
    """Whether targets were taken from a table: the same values, class ids about equally often."""
    if not classes:
        return set(fingerprints(targets)) <= set(fingerprints(table))
    shares = []
    for values in (table, targets):
        known, counts = torch.unique(values[:, 0], return_counts=True)
        shares.append(dict(zip(known.tolist(), (counts / len(values)).tolist(), strict=True)))
    one, other = shares
    return one.keys() == other.keys() and all(abs(one[label] - other[label]) < 0.1 for label in one)


# -- images ------------------------------------------------------------------------------------------------------------


TURNS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "left and right": lambda image: image.flip(-1),
    "upside down": lambda image: image.flip(-2),
    "by half a turn": lambda image: image.flip(-1, -2),
    "by a quarter turn": lambda image: image.rot90(1, (-2, -1)),
    "by three quarter turns": lambda image: image.rot90(3, (-2, -1)),
}


def count_turned(variants: list[list[Variant]], part: IndexPart) -> None:
    """Count how samples of one index differ: turned in one of several ways, or not.

    Args:
        variants: samples (channels, height, width) of one index each, with their targets where those are images too.
        part: where the counts go.
    """
    part.turned, part.upright, part.apart, part.together = {}, 0, 0, 0
    for images in variants[:_IMAGES]:
        first, wanted = images[0]
        for other, target in images[1:4]:
            distances = {"": _distance(first, other)}
            for how, turn in TURNS.items():
                back = turn(first)
                distances[how] = _distance(back, other) if back.shape == other.shape else float("inf")
            best, second = sorted(distances, key=distances.__getitem__)[:2]
            if distances[best] > _LIKE * float(first.var()) or distances[best] > 0.6 * distances[second]:
                continue
            if not best:
                part.upright += 1
                continue
            part.turned[best] = part.turned.get(best, 0) + 1
            if wanted is not None and target is not None and wanted.shape == target.shape:
                turned = TURNS[best](wanted)
                if turned.shape == target.shape and _distance(turned, wanted) > 0.05 * float(wanted.var()):
                    stays, follows = _distance(wanted, target), _distance(turned, target)
                    part.apart += stays < 0.3 * follows
                    part.together += follows < 0.3 * stays


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Mean square difference of two images, the smallest among small shifts, without the edges."""
    height, width = a.shape[-2:]
    edge = min(_SHIFT, (min(height, width) - 1) // 3)
    inner = a[..., edge : height - edge, edge : width - edge]
    return min(
        float((inner - b[..., edge + y : height - edge + y, edge + x : width - edge + x]).square().mean())
        for y in range(-edge, edge + 1)
        for x in range(-edge, edge + 1)
    )


# -- tokens ------------------------------------------------------------------------------------------------------------


def depends_on_tokens(module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[bool, bool] | None:
    """Whether a copy of a model that is given token ids looks ahead, and whether it sees a place's own token.

    Args:
        module: a model whose first tensor argument holds token ids, (samples, places).
        args: what it was given.
        kwargs: by name; without ``args`` the first integers of two dimensions are the tokens.

    Returns:
        (outputs depend on no later token, outputs depend on the token at their own place); None where it can't be
        told: the model can't be copied, or its output has no places.
    """
    if sum(item.numel() for item in module.parameters()) > _PARAMETERS:
        return None
    named = None if args else next((key for key, item in kwargs.items() if _is_tokens(item)), None)
    tokens = args[0] if args else kwargs.get(named)
    if not isinstance(tokens, torch.Tensor) or tokens.dim() != 2 or tokens.shape[1] < 6:
        return None
    state = rng.capture()
    try:
        with torch.no_grad():
            model = copy.deepcopy(module).eval()
            before = tokens[:2].clone()
            after = before.clone()
            middle = tokens.shape[1] // 2
            present = torch.unique(tokens)
            for row in after:
                others = present[present != row[middle]]
                if not len(others):
                    return None
                row[middle] = others[0]
            rest = [item[:2] if _is_batched(item, tokens) else item for item in args[1:]]
            more = {key: item[:2] if _is_batched(item, tokens) else item for key, item in kwargs.items()}
            outputs = []
            for item in (before, after):
                told = model(item, *rest, **more) if named is None else model(**{**more, named: item})
                outputs.append(_places(told, tokens.shape[1]))
    except Exception:  # noqa: BLE001 - a model may refuse two samples, or to be copied
        return None
    finally:
        rng.restore(state)
    if outputs[0] is None or outputs[1] is None or outputs[0].shape != outputs[1].shape:
        return None
    changed = (outputs[0] - outputs[1]).abs().amax((0, 2))
    size = float(outputs[0].abs().amax())
    moved = changed > 1e-5 * size
    return not bool(moved[:middle].any()), bool(moved[middle])


def _is_tokens(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dim() == 2 and item.dtype in (torch.int32, torch.int64)


def _is_batched(item: Any, tokens: torch.Tensor) -> bool:
    return isinstance(item, torch.Tensor) and item.dim() > 0 and item.shape[0] == tokens.shape[0]


def _places(output: Any, length: int) -> torch.Tensor | None:
    """The first tensor of a model's output with places along its second dimension, (samples, places, values)."""
    if isinstance(output, torch.Tensor):
        if output.dim() == 3 and output.shape[1] == length and output.dtype.is_floating_point:
            return output
        return None
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        return next((found for found in (_places(item, length) for item in output) if found is not None), None)
    return None
