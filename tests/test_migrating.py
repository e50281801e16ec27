"""The guide for those who come from Lightning, against the Lightning that is installed: nothing differs that it doesn't
tell, and it tells nothing that isn't so.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import lightning.pytorch.callbacks
import lightning.pytorch.loggers
import lightning.pytorch.profilers
import pytest
from torch import nn

import unstuck
import unstuck.callbacks
import unstuck.loggers
import unstuck.profilers
from unstuck.callbacks import RichProgressBarTheme

PAGE = (Path(__file__).parents[1] / "docs" / "migrating.md").read_text(encoding="utf-8")
PACKAGES = {
    "callbacks": (lightning.pytorch.callbacks, unstuck.callbacks),
    "loggers": (lightning.pytorch.loggers, unstuck.loggers),
    "profilers": (lightning.pytorch.profilers, unstuck.profilers),
}
CLASSES: dict[str, tuple[Any, Any, type]] = {
    "Trainer": (pl.Trainer, unstuck.Trainer, object),
    "LightningModule": (pl.LightningModule, unstuck.LightningModule, nn.Module),
    "LightningDataModule": (pl.LightningDataModule, unstuck.LightningDataModule, object),
    "Callback": (pl.Callback, unstuck.Callback, object),
}
SHARED = {
    name: (getattr(theirs, name), getattr(ours, name))
    for theirs, ours in PACKAGES.values()
    for name in sorted(set(theirs.__all__) & set(ours.__all__))
}


def table(title: str) -> list[list[str]]:
    """The rows of the table below a title, without its head."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def names_in(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


MISSING = {(names_in(where)[0], names_in(name)[0]) for where, name, _ in table("Missing") if names_in(name)}
DIFFERENT = {names_in(what)[0]: difference for what, difference in table("Other signatures")}


def public(cls: type, base: type = object) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")} - set(dir(base))


def instance_attributes(name: str) -> set[str]:
    """What only an object has."""
    if name != "Trainer":
        return set()
    return set(vars(unstuck.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, max_epochs=1)))


def missing() -> Iterator[tuple[str, str]]:
    for name, (theirs, ours, base) in CLASSES.items():
        for member in public(theirs, base) - public(ours) - instance_attributes(name):
            yield name, member
    for package, (theirs, ours) in PACKAGES.items():
        for name in set(theirs.__all__) - set(ours.__all__):
            yield package, name
    for name, (theirs, ours) in SHARED.items():
        for member in public(theirs) - public(ours):
            yield name, member


def test_what_is_missing_is_in_the_table_and_the_other_way_round() -> None:
    assert set(missing()) == MISSING


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    found = inspect.signature(function).parameters.values()
    return {item.name: item for item in found if item.name not in ("self", "cls")}


def is_variadic(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def differences(theirs: Any, ours: Any) -> list[str]:
    """What differs between two signatures, as the guide says it."""
    reference, own = parameters(theirs), parameters(ours)
    found = [f"lacks {name}" for name, item in reference.items() if name not in own and not is_variadic(item)]
    found += [f"`{name}`" for name, item in own.items() if name not in reference and not is_variadic(item)]
    common = [name for name in reference if name in own]
    for name in common:
        before, now = reference[name].default, own[name].default
        same = before == now or (callable(before) and callable(now) and before.__name__ == now.__name__)
        if not same and repr(before) != repr(now):
            found.append(f"`{name}={now!r}`")
    kinds = {own[name].kind for name in common if own[name].kind is not reference[name].kind}
    if kinds:
        assert kinds == {inspect.Parameter.KEYWORD_ONLY}
        found.append("by keyword only")
    elif common != [name for name in own if name in reference]:
        found.append("another order")
    return found


@pytest.mark.parametrize("name", ["Trainer", *SHARED])
def test_signatures_are_the_same_or_in_the_table(name: str) -> None:
    theirs, ours = SHARED.get(name) or CLASSES[name][:2]
    found = differences(theirs.__init__, ours.__init__)
    told = DIFFERENT.get(name, "")
    assert all(item in told for item in found), found
    assert bool(found) == bool(told)
    mentioned = [item for item in names_in(told) if "=" not in item]
    assert all(f"`{item}`" in found for item in mentioned)


@pytest.mark.parametrize("name", CLASSES)
def test_methods_have_the_same_signatures(name: str) -> None:
    theirs, ours, base = CLASSES[name]
    for member in sorted(public(theirs, base) & public(ours)):
        reference, own = getattr(theirs, member), getattr(ours, member)
        if callable(reference) and not inspect.isclass(reference):
            told = DIFFERENT.get(f"{name}.{member}", "")
            assert differences(reference, own) == [f"`{item}`" for item in names_in(told)], member


def test_a_fresh_theme_is_lightnings() -> None:
    theirs = lightning.pytorch.callbacks.RichProgressBar().theme
    assert vars(RichProgressBarTheme()).keys() == vars(theirs).keys()
