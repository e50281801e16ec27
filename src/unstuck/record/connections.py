"""Which parameters a program has, who holds them, which passes reach them, and whether they move: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from unstuck.places import Frame

__all__ = ["Connections", "Fleeting", "HolderRecord", "ParameterRecord", "PassRecord", "Statement", "Switch"]


@dataclass
class ParameterRecord:
    """One parameter. A *look* is a backward pass at which all parameters were looked at.

    Attributes:
        path: dotted path, as places name it.
        name: dotted path below its outermost module.
        kind: class of the module that owns it, empty for one without.
        home: ``model`` for a part of a model that an optimiser trains, ``apart`` for another module's, ``hidden`` for
            a module that is kept in a plain list or dictionary of a module, ``bare`` for one without a module.
        size: elements.
        shape: sizes.
        made_at: lines that made or filled it; empty if unknown.
        after: optimisers that had been made before it was first there.
        looks: since it is known.
        trained: looks at which it required gradients.
        fed: looks that left it a gradient.
        first_fed: step of the first of these.
        last_fed: step of the last one.
        first_seen: step of the first look, None before there was one.
        last_frozen: step of the last look at which it didn't require gradients.
        born_frozen: it was made without requiring gradients.
        held_by: numbers of the optimisers that have held it.
        changed: its numbers, or their version, have changed since the first look.
        last_changed: step of the last look that found them changed since the look before.
        loaded: a state was loaded into it before that.
        drawn: its numbers look like random ones; None where that can't be told or wasn't asked.
        present: it was its module's, and the module's in use, at the last look.
        built: its module was constructed while the program was watched.
    """

    path: str
    name: str
    kind: str
    home: str
    size: int
    shape: tuple[int, ...] = ()
    made_at: tuple[Frame, ...] = ()
    after: int = 0
    looks: int = 0
    trained: int = 0
    fed: int = 0
    first_fed: int | None = None
    last_fed: int | None = None
    first_seen: int | None = None
    last_frozen: int | None = None
    born_frozen: bool = False
    held_by: list[int] = field(default_factory=list)
    changed: bool = False
    last_changed: int | None = None
    loaded: bool = False
    drawn: bool | None = None
    present: bool = True
    built: bool = False


@dataclass
class HolderRecord:
    """One optimiser.

    Attributes:
        kind: class name.
        made_at: the user's lines that constructed it.
        steps: steps that it took.
        last_step: steps of any optimiser that were complete before its last one.
        parameters: how many it holds.
        foreign: of these, tensors that belong to no module that is known.
    """

    kind: str
    made_at: tuple[Frame, ...] = ()
    steps: int = 0
    last_step: int = 0
    parameters: int = 0
    foreign: int = 0


@dataclass
class PassRecord:
    """One line that calls ``backward``.

    Attributes:
        at: the user's lines down to it.
        step: steps that were complete at its first call.
        count: calls that were noted: those that were looked at, and those without a graph.
        looks: calls that were looked at.
        cut: of these, losses whose graph reaches no parameter.
        leaf: of these, losses that are leaves themselves (``requires_grad_()``).
        graphless: losses that require no gradient at all, for which ``backward`` raises.
    """

    at: tuple[Frame, ...]
    step: int = 0
    count: int = 0
    looks: int = 0
    cut: int = 0
    leaf: int = 0
    graphless: int = 0


@dataclass
class Switch:
    """A call of ``requires_grad_`` on a module.

    Attributes:
        path: dotted path of the module, empty if unknown.
        on: what it turned gradients to.
        at: the user's lines down to it.
        step: steps that were complete.
    """

    path: str
    on: bool
    at: tuple[Frame, ...]
    step: int


@dataclass
class Statement:
    """A statement of the user's files that the rules look up.

    Attributes:
        kind: ``freeze`` for what turns gradients of single parameters off, ``uncalled`` for a method that is named but
            not called, ``no_grad`` for a block or function without gradients, ``step`` for a call of an optimiser's
            step, ``rate`` for a learning rate that is set by hand, ``dropout`` for functional dropout that no mode
            turns off, ``dropped_clip`` for a gradient that is limited out of place, ``dropped_update`` for a
            parameter's new value that is put nowhere, ``gradient_change`` for one that is
            changed by hand, ``rewarded`` for a log-probability times a reward,
            ``swapped_triplet`` for a hinge over a negative's distance minus a positive's.
        file: absolute path.
        line: 1-based.
        text: the line.
        end: last line of a block or an expression, 0 for others.
    """

    kind: str
    file: str
    line: int
    text: str
    end: int = 0


@dataclass
class Fleeting:
    """Parameters that are made anew in every pass, by the line that makes them.

    Attributes:
        at: the user's lines down to it.
        passes: looks that found new ones.
        parameters: how many in a pass.
    """

    at: tuple[Frame, ...]
    passes: int = 0
    parameters: int = 0


@dataclass
class Connections:
    """All of them.

    Attributes:
        parameters: every one that was seen.
        holders: every optimiser, by number.
        passes: every line that calls backward.
        switches: calls of ``requires_grad_`` on modules.
        statements: of the user's files.
        modules: lines that made a module, by its path, for modules with parameters that fare unusually.
        hidden_in: path of the list by the path of a module in it.
        fleeting: lines that make parameters anew in every pass.
        manual: calls of ``torch.autograd.grad``, whose gradients may be taken by the program itself.
    """

    parameters: list[ParameterRecord] = field(default_factory=list)
    holders: list[HolderRecord] = field(default_factory=list)
    passes: list[PassRecord] = field(default_factory=list)
    switches: list[Switch] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    modules: dict[str, tuple[Frame, ...]] = field(default_factory=dict)
    hidden_in: dict[str, str] = field(default_factory=dict)
    fleeting: list[Fleeting] = field(default_factory=list)
    manual: int = 0
