"""Going on within a pass over the training data: the batches that follow are those that would have followed.

A plain loader has no position that could be saved. What decides about its order are random states, though, and these
are saved: from when the pass was begun, from when its first batch was drawn, and from when the checkpoint was written.
The pass is begun with the first and second, the batches that are done are passed over, and the third is put back. Where
a sampler in this process decides about the order, nothing is loaded for that; elsewhere the batches are drawn again,
since workers keep random states of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from unstuck.messages import PossibleUserWarning, rank_zero_info, rank_zero_warn
from unstuck.trainer.checkpoints.random_state import restore
from unstuck.trainer.checkpoints.restore import Resumption
from unstuck.trainer.data.combined import iterate, iterate_from, iterate_single
from unstuck.trainer.data.loaders import is_shuffled, is_stateful, length_of, skipping_loader
from unstuck.trainer.run import Run

__all__ = ["begin_pass_again", "restore_between_epochs", "restore_modes_of", "warn_of_overfitting"]


def load_loader_states(run: Run, resumption: Resumption) -> bool:
    """Gives the training loaders that can go on by themselves their states.

    Returns:
        Whether these are all of the training loaders.
    """
    stateful = [loader for loader in run.train.combined.flattened if is_stateful(loader)]
    if len(stateful) != len(resumption.loader_states):
        if resumption.loader_states:
            rank_zero_warn(
                f"The checkpoint holds the states of {len(resumption.loader_states)} training loaders, but now"
                f" {len(stateful)} can take one: they begin anew."
            )
        return False
    for loader, state in zip(stateful, resumption.loader_states, strict=True):
        loader.load_state_dict(state)
    return bool(stateful) and len(stateful) == len(run.train.combined.flattened)


def begin_pass_again(run: Run, resumption: Resumption) -> None:
    """Begins the pass over the training data at the batch where a checkpoint was written.

    Afterwards the random states are those of that moment. Where the order can't be continued, a warning gives the
    numbers of what is seen again.
    """
    _begin_again(run, resumption)
    if run.train.combined.drawn is not None:
        run.train.combined.drawn.forget()  # it has followed an iterator from another place than the pass's beginning


def _begin_again(run: Run, resumption: Resumption) -> None:
    data, done = run.train, resumption.position.batches
    states = resumption.own.get("pass")
    sources = run.trail.sources
    run.trail.follow(data.combined)
    # Beside a loader that can't, none goes on by itself: all are passed over from the pass's beginning.
    goes_on_itself = all(map(is_stateful, data.combined.flattened)) and load_loader_states(run, resumption)
    set_running_workers(run, resumption)
    if resumption.position.is_last_batch:
        data.batches = iter(())
        run.trail.begin_pass()
        restore_present(run, resumption)
        return
    if states is not None:
        restore(states["begun"], sources)
    run.trail.begin_pass()
    if goes_on_itself:
        data.batches = iterate(data.combined, start=done)
        doubt = None
    else:
        doubt = _doubt(run, resumption)
        if _is_indexed_here(data.combined):
            data.batches = _pass_over_indices(run, resumption)
            _tell(run, done, doubt)
            return
        if done:
            rank_zero_info(
                f"The {done} batches of this epoch that are done are drawn again, to go on with those that follow. A"
                " loader with `state_dict` and `load_state_dict` goes on at once."
            )
        if states is not None and states.get("restarts"):
            data.batches = _pass_over_restarts(run, states, done)
        else:
            data.batches = iterate(data.combined)
            _restore_draw(run, states)
            _pass_over(data.batches, done - 1)
            # The last one that is passed over draws the one ahead.
            _restore_ahead(run, states)
            _pass_over(data.batches, 1)
    restore_present(run, resumption)
    _tell(run, done, doubt)


def restore_present(run: Run, resumption: Resumption) -> None:
    """Puts the random states back to those of the moment of the checkpoint, if it holds them."""
    if "random" in resumption.own:
        restore(resumption.own["random"], run.trail.sources)


def _is_indexed_here(combined: Any) -> bool:
    """Whether the batches of a pass follow from indices that a sampler in this process draws."""
    if len(combined.flattened) != 1 or combined.iterables is not combined.flattened[0]:
        return False
    loader = combined.flattened[0]
    return (
        isinstance(loader, DataLoader)
        and type(loader).__iter__ is DataLoader.__iter__
        and loader.num_workers == 0
        and not isinstance(loader.dataset, IterableDataset)
        and not math.isinf(combined.num_batches)
    )


def _pass_over_indices(run: Run, resumption: Resumption) -> Iterator[Any]:
    """A pass whose first batches are never loaded: their indices are drawn and dropped."""
    combined, done = run.train.combined, resumption.position.batches
    states = resumption.own.get("pass")
    loader, indices = skipping_loader(combined.flattened[0], done)
    batches = iter(loader)
    _restore_draw(run, states)
    if indices.drop():
        rank_zero_warn(
            "The sampler of the training loader draws from the global random numbers between the batches, so its order"
            " can't be continued exactly: samples may come twice, others not at all in this epoch. Give it a generator"
            " of its own."
        )
    restore_present(run, resumption)
    return iterate_single(batches, int(combined.num_batches), done)


def _pass_over_restarts(run: Run, states: dict[str, Any], done: int) -> Iterator[Any]:
    """A pass in which loaders have started anew: each goes on from its last start.

    Args:
        run: the run.
        states: of the pass, as saved.
        done: batches of the pass that are done.
    """
    combined, trail = run.train.combined, run.trail
    iterators = [combined.begin(loader) for loader in combined.loaders_of_pass]
    _restore_draw(run, states)
    for iterator in iterators:
        next(iterator, None)
    for position, iterator in enumerate(iterators):
        if position not in states["restarts"]:
            _pass_over(iterator, done - 1)
    for position, (batch, random) in sorted(states["restarts"].items(), key=lambda item: (item[1][0], item[0])):
        restore(random, trail.sources)
        trail.note_restart(position, batch)
        iterator = combined.begin(combined.loaders_of_pass[position])
        # The first draw decides about the order, so it is made now, even where its batch is still to come.
        first = next(iterator, None)
        _pass_over(iterator, done - batch - 1)
        iterators[position] = iterator if batch < done else chain([first], iterator)
    steps = combined.go_on(iterators, start=done, restarted=states["restarts"])
    _restore_ahead(run, states)
    return iterate_from(combined, steps, start=done)


def _restore_draw(run: Run, states: dict[str, Any] | None) -> None:
    """Puts back the random states of the first draw of the pass."""
    if states is not None and states["drawn"] is not None:
        restore(states["drawn"], run.trail.sources)
    run.trail.drawn = run.trail.now()


def _restore_ahead(run: Run, states: dict[str, Any] | None) -> None:
    """Puts back the random states with which a pass of unknown length has drawn the batch ahead: its samples may depend
    on them, and a training step came before.
    """
    if states is not None and states.get("ahead") is not None:
        restore(states["ahead"], run.trail.sources)
        run.trail.note_look_ahead()


def _pass_over(batches: Iterator[Any], count: int) -> None:
    for _ in range(count):
        next(batches, None)


def set_running_workers(run: Run, resumption: Resumption) -> None:
    """Lets the loaders go on as if the persistent workers of before still ran: these draw no seed again."""
    running = resumption.own.get("running_workers", {})
    for name, data in (("train", run.train), ("val", run.val)):
        if name in running and data.combined is not None:
            data.combined.set_running(running[name])
    loaders = run.train.combined.flattened
    if any(runs and not _only_holds_tensors(loader) for runs, loader in zip(running.get("train", []), loaders)):  # noqa: B905 - as far as both go
        rank_zero_warn(
            "The order of the data is continued, but the training loader has persistent workers, whose own random"
            " numbers aren't: if the dataset draws some for its samples (augmentation), they are others than in a run"
            " without interruption. Without `persistent_workers=True` they are the same.",
            PossibleUserWarning,
        )


def _only_holds_tensors(loader: Any) -> bool:
    dataset = getattr(loader, "dataset", None)
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return isinstance(dataset, TensorDataset)


def _doubt(run: Run, resumption: Resumption) -> str | None:
    """Why the order of the data can't be continued, None if it can."""
    combined, states, done = run.train.combined, resumption.own.get("pass"), resumption.position.batches
    shuffled = [loader for loader in combined.flattened if _draws_at_random(loader)]
    if states is None and shuffled:
        return "the checkpoint doesn't hold the random state with which it was shuffled"
    saved = resumption.own.get("training_batches", run.progress.num_training_batches)
    if saved != run.progress.num_training_batches:
        return f"an epoch had {saved} batches then and has {run.progress.num_training_batches} now"
    knows_restarts = states is None or "restarts" in states
    if (
        combined.mode == "max_size_cycle"
        and not knows_restarts
        and any(length_of(loader) < done for loader in shuffled)
    ):
        return "a shorter loader was begun anew in between, with random numbers that aren't known any more"
    return None


def _draws_at_random(loader: Any) -> bool:
    sampler = getattr(loader, "sampler", None)
    return is_shuffled(loader) or isinstance(sampler, (WeightedRandomSampler, SubsetRandomSampler))


def _tell(run: Run, done: int, doubt: str | None) -> None:
    if doubt is None or not done:
        return
    total = run.progress.num_training_batches
    left = total - done
    size = getattr(run.train.combined.flattened[0], "batch_size", None)

    def samples(batches: float) -> str:
        return f"{int(batches * size)} samples" if isinstance(size, int) else f"{int(batches)} batches"

    rest = "the rest of the epoch is" if math.isinf(left) else f"the remaining {int(left)} of {int(total)} batches are"
    repeated = done if math.isinf(left) else min(done, max(left, 0))
    rank_zero_warn(
        f"The training goes on after {done} batches of epoch {run.progress.current_epoch}, but the order of the data"
        f" can't be continued: {doubt}. So {rest} drawn from a new order: up to {samples(repeated)} that this epoch has"
        " seen come again, and as many are left out."
    )


def warn_of_overfitting(run: Run) -> None:
    """Warns where ``overfit_batches`` has drawn the samples of the fit from a sampler: now they are drawn anew."""
    if run.settings.limits.overfit is None:
        return
    if not all(
        isinstance(getattr(loader, "sampler", None), SequentialSampler) for loader in run.train.combined.flattened
    ):
        rank_zero_warn(
            "`overfit_batches` draws its samples once for a run, and those of the run that goes on aren't in the"
            " checkpoint: it trains on others now, unless the loader's order is always the same."
        )


def restore_between_epochs(run: Run, resumption: Resumption) -> None:
    """Puts back the random states of a checkpoint that was written between two epochs, or as one began."""
    states = resumption.own.get("pass")
    if resumption.loader_states:
        load_loader_states(run, resumption)
    set_running_workers(run, resumption)
    if states is not None:
        restore(states["begun"], run.trail.sources)
        run.trail.begin_pass()
        run.trail.follow(run.train.combined)
        run.train.batches = iterate(run.train.combined)
    restore_present(run, resumption)


def restore_modes_of(module: torch.nn.Module, names: list[str]) -> None:
    """Puts the modules of these names into eval mode, as they were within the epoch."""
    for name, child in module.named_modules():
        if name in names:
            child.training = False
