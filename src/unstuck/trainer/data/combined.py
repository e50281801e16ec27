"""Several loaders as one: :class:`CombinedLoader`, and one pass over it as the loops make it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any, Literal, cast, get_args

from torch.utils import _pytree as pytree
from typing_extensions import Self

from unstuck.trainer.data.indices import PassIndices
from unstuck.trainer.data.loaders import (
    flatten_loaders,
    has_running_workers,
    is_stateful,
    iterate_as_if_running,
    length_of,
    shut_down_workers,
)

__all__ = ["CombinationMode", "CombinedLoader", "as_combined", "iterate", "iterate_from", "iterate_single"]

CombinationMode = Literal["min_size", "max_size_cycle", "max_size", "sequential"]

_END = object()


class CombinedLoader(Iterable[tuple[Any, int, int]]):
    """Iterates several loaders together, as triples of batch, batch_idx and dataloader_idx.

    The batch has the structure of the collection, with each loader's batch in the loader's place; in the mode
    "sequential" it
    is one loader's batch, and ``batch_idx`` starts at 0 again with each loader.

    >>> for step in CombinedLoader({"a": range(2), "b": range(3)}, "max_size_cycle"):
    ...     print(step)
    ({'a': 0, 'b': 0}, 0, 0)
    ({'a': 1, 'b': 1}, 1, 0)
    ({'a': 0, 'b': 2}, 2, 0)
    """

    def __init__(self, iterables: Any, mode: CombinationMode = "min_size") -> None:
        """
        Args:
            iterables: a loader or a nested collection (lists, tuples, dicts) of loaders.
            mode: when a pass ends, and what exhausted loaders give: "min_size" ends with the shortest loader,
                "max_size_cycle" with the longest, starting the others anew, "max_size" with the longest, giving None
                for the
                others; "sequential" goes through one loader after the other.

        Raises:
            ValueError: for an unknown mode.
        """
        if mode not in get_args(CombinationMode):
            modes = ", ".join(get_args(CombinationMode))
            raise ValueError(f"mode={mode!r} is no way to combine loaders; the modes are {modes}.")
        self.drawn: PassIndices | None = None  # where somebody wants to know which samples a batch is made of
        self._iterables = iterables
        self._flattened, self._spec = flatten_loaders(iterables)
        self._mode: CombinationMode = mode
        self._limits: list[int | float] | None = None
        self._pass: Iterator[tuple[Any, int, int]] | None = None
        self._states_before: list[Any] | None = None
        self._ran_before: set[int] = set()
        self.on_restart: Callable[[int, int], None] | None = None
        """Called with a loader's position and the number of the batch, before a loader that is through starts anew
        within a pass."""
        self.on_look_ahead: Callable[[], None] | None = None
        """Called before a pass of unknown length draws one batch ahead, if that happens in this process."""
        self.limits_each = False
        """Whether a limit ends its loader within a pass (which a shorter loader then may start anew), besides the pass.
        """

    @property
    def iterables(self) -> Any:
        """The collection of loaders."""
        return self._iterables

    @property
    def mode(self) -> CombinationMode:
        """How the loaders are combined."""
        return self._mode

    @property
    def flattened(self) -> list[Any]:
        """The loaders in a flat list; a list of the same length may be assigned."""
        return self._flattened

    @flattened.setter
    def flattened(self, loaders: list[Any]) -> None:
        if len(loaders) != len(self._flattened):
            raise ValueError(f"{len(loaders)} loaders can't take the places of {len(self._flattened)}.")
        self._iterables = pytree.tree_unflatten(loaders, self._spec)
        self._flattened = loaders

    @property
    def limits(self) -> list[int | float] | None:
        """Batches of each loader that count; a single number is one for all loaders, None no limit."""
        return self._limits

    @limits.setter
    def limits(self, limits: int | float | Sequence[int | float] | None) -> None:
        if isinstance(limits, (int, float)):
            limits = [limits] * len(self._flattened)
        if limits is not None and len(limits) != len(self._flattened):
            raise ValueError(f"{len(limits)} limits don't fit {len(self._flattened)} loaders.")
        self._limits = None if limits is None else list(limits)

    @property
    def sampler(self) -> Any:
        """The loaders' samplers, in the structure of the collection."""
        return self._map("sampler")

    @property
    def batch_sampler(self) -> Any:
        """The loaders' batch samplers, in the structure of the collection."""
        return self._map("batch_sampler")

    def _map(self, attribute: str) -> Any:
        return pytree.tree_unflatten([getattr(loader, attribute, None) for loader in self._flattened], self._spec)

    @property
    def num_batches(self) -> int | float:
        """Batches of a pass, limits applied; inf when a loader without length and limit decides."""
        lengths = [length_of(loader) for loader in self._flattened]
        if self._limits is not None:
            lengths = [min(length, limit) for length, limit in zip(lengths, self._limits, strict=True)]
        if self._mode == "sequential":
            return sum(lengths)
        return (min if self._mode == "min_size" else max)(lengths, default=0)

    def __len__(self) -> int:
        """Batches of a pass. Raises TypeError when it has no known end."""
        number = self.num_batches
        if math.isinf(number):
            raise TypeError("a CombinedLoader has no length when a loader without length decides about it")
        return int(number)

    def __iter__(self) -> Self:
        self._pass = self.start_pass()
        return self

    def __next__(self) -> tuple[Any, int, int]:
        if self._pass is None:
            raise RuntimeError("call iter() on the CombinedLoader first")
        return next(self._pass)

    def start_pass(self) -> Iterator[tuple[Any, int, int]]:
        """A pass of its own. The loaders' iterators are made at once (in the mode "sequential", each when its turn
        comes).
        """
        if self._mode == "sequential":
            loaders = self.loaders_of_pass
            first = self.begin(loaders[0]) if loaders else iter(())
            return self._sequential(loaders, first)
        return self.go_on([self.begin(loader) for loader in self.loaders_of_pass])

    @property
    def loaders_of_pass(self) -> list[Any]:
        """The loaders as a pass goes through them: each to its limit, if that ends it within a pass."""
        if self.limits_each and self._limits is not None:
            return [_FirstBatches(loader, n) for loader, n in zip(self._flattened, self._limits, strict=True)]
        return self._flattened

    def begin(self, loader: Any) -> Iterator[Any]:
        """``iter(loader)``, where :meth:`set_running` says so as if its workers ran already."""
        if self.drawn is not None and len(self._flattened) == 1:
            return self.drawn.begin(lambda: self._begin(loader))
        return self._begin(loader)

    def _begin(self, loader: Any) -> Iterator[Any]:
        if id(loader) in self._ran_before:
            self._ran_before.discard(id(loader))
            return iterate_as_if_running(loader)
        return iter(loader)

    def running(self) -> list[bool]:
        """Of which loaders persistent workers run."""
        return [id(loader) in self._ran_before or has_running_workers(loader) for loader in self._flattened]

    def set_running(self, running: Sequence[bool]) -> None:
        """Lets the loaders draw random numbers as if persistent workers ran of those loaders, and only of those."""
        self._ran_before = {id(loader) for loader, runs in zip(self._flattened, running, strict=False) if runs}
        for loader in self._flattened:
            if id(loader) not in self._ran_before and has_running_workers(loader):
                shut_down_workers(loader)

    def take_over_running(self, before: CombinedLoader | None) -> None:
        """Treats loaders that stood in an earlier collection, too, as that was told by :meth:`set_running`."""
        if before is not None:
            self._ran_before = before._ran_before & {id(loader) for loader in self._flattened}

    def go_on(
        self, iterators: list[Iterator[Any]], start: int = 0, restarted: Iterable[int] = ()
    ) -> Iterator[tuple[Any, int, int]]:
        """Goes on with a pass in which loaders stand side by side.

        Args:
            iterators: of the loaders, each where the pass stands.
            start: the number of the next batch.
            restarted: positions of the loaders that have started anew in this pass.
        """
        if self._mode == "max_size_cycle":
            batches: Iterator[Sequence[Any]] = self._cycled(iterators, start, set(restarted))
        elif self._mode == "max_size":
            batches = zip_longest(*iterators)
        else:
            batches = zip(*iterators)  # noqa: B905 - ends with the shortest
        return self._numbered(batches, start)

    def _numbered(self, batches: Iterator[Sequence[Any]], start: int) -> Iterator[tuple[Any, int, int]]:
        spec = self._spec
        for index, batch in enumerate(batches, start):
            yield pytree.tree_unflatten(batch, spec), index, 0

    def _cycled(self, iterators: list[Iterator[Any]], start: int, through: set[int]) -> Iterator[list[Any]]:
        """Steps until every loader has been gone through once; a loader that is through starts anew."""
        loaders = self.loaders_of_pass
        for number in itertools.count(start):
            batches: list[Any] = []
            for position, iterator in enumerate(iterators):
                batch = next(iterator, _END)
                if batch is _END:
                    through.add(position)
                    if len(through) == len(iterators):
                        return
                    if self.on_restart is not None:
                        self.on_restart(position, number)
                    iterators[position] = self.begin(loaders[position])
                    batch = next(iterators[position], _END)
                    if batch is _END:  # an empty loader can't be started anew
                        return
                batches.append(batch)
            if not batches:
                return
            yield batches

    def _sequential(self, loaders: list[Any], first: Iterator[Any]) -> Iterator[tuple[Any, int, int]]:
        """One loader after the other."""
        for position, loader in enumerate(loaders):
            limit = math.inf if self._limits is None else self._limits[position]
            iterator = first if position == 0 else self.begin(loader)
            batches = iterator if math.isinf(limit) else islice(iterator, int(limit))
            for index, batch in enumerate(batches):
                yield batch, index, position

    def loader_states(self) -> list[Any]:
        """The states of the loaders that have one, after the batch that a pass has given last."""
        return self._present_states() if self._states_before is None else self._states_before

    def _present_states(self) -> list[Any]:
        return [loader.state_dict() for loader in self._flattened if is_stateful(loader)]

    def one_ahead(self, steps: Iterator[tuple[Any, int, int]]) -> Iterator[tuple[Any, int, int, bool]]:
        """A pass of unknown length, whose batches tell whether another one follows. The first is drawn at once."""
        step = next(steps, None)
        return self._one_ahead(steps, step)

    def _one_ahead(
        self, steps: Iterator[tuple[Any, int, int]], step: tuple[Any, int, int] | None
    ) -> Iterator[tuple[Any, int, int, bool]]:
        keeps_states = any(map(is_stateful, self._flattened))
        looks_here = any(getattr(loader, "num_workers", 0) == 0 for loader in self._flattened)
        while step is not None:
            if keeps_states:
                self._states_before = self._present_states()
            if looks_here and self.on_look_ahead is not None:
                self.on_look_ahead()
            following = next(steps, None)
            yield *step, following is None
            step = following
        self._states_before = None

    def reset(self) -> None:
        """Ends a pass, and the loaders' persistent workers."""
        self._pass = None
        for loader in self._flattened:
            shut_down_workers(loader)


class _FirstBatches:
    """The first batches of each pass over a loader."""

    def __init__(self, loader: Any, count: int | float) -> None:
        self._loader = loader
        self._count = None if math.isinf(count) else int(count)

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._loader), self._count)


def as_combined(loaders: Any, mode: CombinationMode) -> CombinedLoader:
    """A collection for the loops' own use: of loaders in the given mode, or of what a CombinedLoader holds in its own.

    A CombinedLoader of the real Lightning is understood too; the user's object isn't changed.
    """
    if isinstance(loaders, CombinedLoader):
        return CombinedLoader(loaders.iterables, loaders.mode)
    if type(loaders).__name__ == "CombinedLoader" and hasattr(loaders, "iterables") and hasattr(loaders, "_mode"):
        return CombinedLoader(loaders.iterables, cast(CombinationMode, loaders._mode))
    return CombinedLoader(loaders, mode)


def iterate(combined: CombinedLoader, start: int = 0) -> Iterator[tuple[Any, int, int, bool]]:
    """Starts a pass as the loops make it: batch, batch_idx, dataloader_idx, and whether it is the last batch.

    Args:
        combined: the loaders.
        start: the number of the first batch, for loaders that go on within a pass by themselves.

    Iterators are made at once, so the caller decides when workers start and random numbers are drawn. A pass of known
    length draws each batch when it is asked for, and none beyond its end. A pass of unknown length is one batch ahead
    (the first one is drawn at once), as nothing else tells that a batch is the last.
    """
    number = combined.num_batches
    if number <= start:
        return iter(())
    single = len(combined.flattened) == 1 and combined.iterables is combined.flattened[0]
    if single and not math.isinf(number):
        return iterate_single(combined.begin(combined.flattened[0]), int(number), start)
    steps = combined.start_pass()
    if start:
        steps = ((batch, index + start, position) for batch, index, position in steps)
    return iterate_from(combined, steps, start)


def iterate_from(
    combined: CombinedLoader, steps: Iterator[tuple[Any, int, int]], start: int
) -> Iterator[tuple[Any, int, int, bool]]:
    """The pass of :func:`iterate` from the batch ``start`` on, of which ``steps`` are the batches."""
    number = combined.num_batches
    return combined.one_ahead(steps) if math.isinf(number) else _known(steps, int(number), start)


def iterate_single(batches: Iterator[Any], number: int, start: int = 0) -> Iterator[tuple[Any, int, int, bool]]:
    """The pass of :func:`iterate` over one loader's batches, which are those from ``start`` on of ``number``."""
    last = number - 1
    for index, batch in zip(range(start, number), batches):  # noqa: B905 - the range first: nothing is drawn beyond
        yield batch, index, 0, index == last


def _known(steps: Iterator[tuple[Any, int, int]], number: int, start: int) -> Iterator[tuple[Any, int, int, bool]]:
    last = number - 1
    for count, (batch, index, position) in zip(range(start, number), steps):  # noqa: B905 - as above
        yield batch, index, position, count == last
