"""How many batches a run uses: reading the limits that a Trainer is given, and resolving them against loaders.

A limit is either an ``int``, a number of batches, or a ``float`` within 0.0 and 1.0, a fraction of a loader's batches:
``1`` is one batch, ``1.0`` all of them. Both count the batches of one device, before accumulation. A fraction always
resolves to ``int(length * fraction)``, for every loader alike.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from numbers import Integral, Real
from typing import Any, Literal

from unstuck.errors import MisconfigurationException

__all__ = [
    "BatchLimits",
    "Overfit",
    "Stage",
    "describe_limit",
    "parse_batch_limits",
    "parse_check_val_every_n_epoch",
    "parse_fast_dev_run",
    "parse_limit",
    "parse_num_sanity_val_steps",
    "parse_overfit_batches",
    "parse_val_check_interval",
    "resolve_limit",
    "resolve_val_check_interval",
    "smallest_fraction",
]

Stage = Literal["train", "val", "test", "predict"]

DEFAULT_SANITY_STEPS = 2
_ORDERS = ("sequential", "replay", "shuffle")
_VALIDATE_ON = ("val", "train")
_TIME = re.compile(r"(\d+):(\d\d):(\d\d):(\d\d)")


@dataclass(frozen=True)
class Overfit:
    """What ``Trainer(overfit_batches=...)`` takes beside a plain number: the number, with options.

    >>> Overfit(10, order="shuffle", validate_on="train")
    Overfit(batches=10, order='shuffle', validate_on='train')
    """

    batches: int | float
    """Batches of each training loader: an int, or a fraction of 0.0 to 1.0. 0 switches overfitting off."""
    order: Literal["sequential", "replay", "shuffle"] = "sequential"
    """In which order and as what the batches come.

    - ``"sequential"``: shuffling goes off. A random sampler is replaced by a sequential one; any other sampler that
      isn't sequential has the indices of its
      first batches drawn once and replayed. The dataset is read in every epoch anew, so augmentation stays on.
    - ``"replay"``: the loader is left alone. Its first batches are drawn once, kept in memory and replayed,
      augmentation included.
    - ``"shuffle"``: the samples of the first batches that the loader draws stay the same, while their order and their
      division into batches follow the
      user's shuffle in every epoch. Where a batch sampler of the user's own decides which samples go together, and for
      streams, whole batches are shuffled.
      A loader that doesn't shuffle stays in its order.
    """
    validate_on: Literal["val", "train"] = "val"
    """Whether a fit validates on the first batches of the validation loaders, or on the very samples that it trains on.
    """


@dataclass(frozen=True)
class BatchLimits:
    """The limits of a Trainer, read and checked, with ``fast_dev_run`` and ``overfit_batches`` already applied."""

    train: int | float
    val: int | float
    test: int | float
    predict: int | float
    sanity: int | float
    """Batches of each validation loader in the sanity check; inf for all of them, 0 for no check."""
    val_check_interval: int | float | timedelta
    """Batches, a fraction of an epoch, or a time between validations."""
    overfit: Overfit | None
    """None when ``overfit_batches`` is off."""
    fast_dev_run: int
    """Batches of a dry run, 0 when it is off."""
    notes: tuple[str, ...] = ()
    """Lines for the user: how each explicit 1 and 1.0 was read, what overrules what."""


def parse_limit(name: str, value: Any) -> int | float:
    """Reads one limit.

    Args:
        name: the Trainer's argument, for the error.
        value: an int of at least 0, a float of 0.0 to 1.0, a whole float above 1 (read as an int), a bool (read as an
        int), or None (read as 1.0: all).

    Returns:
        An int for a number of batches, a float for a fraction.

    Raises:
        MisconfigurationException: for anything else, naming the argument and the smallest valid values.
    """
    if value is None:
        return 1.0
    number = _number(value)
    if isinstance(number, float) and number > 1.0 and number.is_integer():
        number = int(number)
    if (isinstance(number, int) and number >= 0) or (isinstance(number, float) and 0.0 <= number <= 1.0):
        return number
    raise MisconfigurationException(
        f"Trainer({name}={value!r}) is no limit: it takes a number of batches (an int; 0 is none, the smallest that "
        f"uses the loader is 1) "
        "or a fraction of each loader's batches (a float from 0.0 to 1.0)."
    )


def _number(value: Any) -> int | float | None:
    """An int for whole-number types (bool and numpy's included), a float for other reals, else None."""
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else None


def _whole(value: Any) -> int | None:
    """A number without a fraction as an int, None for everything else."""
    number = _number(value)
    if isinstance(number, float):
        return int(number) if number.is_integer() else None
    return number


def describe_limit(name: str, value: Any) -> str | None:
    """The line that tells how an explicit 1 or 1.0 was read, since the two mean very different things; None for every
    other value.
    """
    number = None if isinstance(value, bool) else _number(value)
    if number != 1:
        return None
    counts = isinstance(number, int)
    if name == "val_check_interval":
        meaning = (
            "validation runs after every training batch"
            if counts
            else "validation runs at the end of the training epoch"
        )
    else:
        per_epoch = " per epoch" if name in ("limit_train_batches", "overfit_batches") else ""
        meaning = f"1 batch{per_epoch} of each loader is used" if counts else f"100% of the batches{per_epoch} are used"
    return f"`Trainer({name}={1 if counts else 1.0})` was read as {'a number' if counts else 'a fraction'}: {meaning}."


def parse_overfit_batches(value: Any) -> Overfit | None:
    """Reads ``overfit_batches``: a limit, or :class:`Overfit` with options. Returns None for 0, which is off.

    Raises:
        MisconfigurationException: for an invalid limit or option.
    """
    overfit = value if isinstance(value, Overfit) else Overfit(0 if value is None else value)
    if overfit.order not in _ORDERS:
        raise MisconfigurationException(
            f"Trainer(overfit_batches=Overfit(order={overfit.order!r})): order is one of {', '.join(_ORDERS)}."
        )
    if overfit.validate_on not in _VALIDATE_ON:
        raise MisconfigurationException(
            f"Trainer(overfit_batches=Overfit(validate_on={overfit.validate_on!r})): validate_on is one of "
            f"{', '.join(_VALIDATE_ON)}."
        )
    batches = parse_limit("overfit_batches", overfit.batches)
    return replace(overfit, batches=batches) if batches > 0 else None


def parse_fast_dev_run(value: Any) -> int:
    """Reads ``fast_dev_run``: True is one batch, an int that many, False, None and 0 are off.

    Raises:
        MisconfigurationException: for a negative number or one that isn't whole.
    """
    if value is None:
        return 0
    batches = _whole(value)
    if batches is not None and batches >= 0:
        return batches
    raise MisconfigurationException(
        f"Trainer(fast_dev_run={value!r}) is no number of batches: it takes a bool or an int >= 0 (False or 0 is off, "
        f"the smallest dry run is 1)."
    )


def parse_num_sanity_val_steps(value: Any) -> int | float:
    """Reads ``num_sanity_val_steps``: an int, -1 for all batches; None is the default of 2. Returns inf for all.

    Raises:
        MisconfigurationException: for a number below -1 or one that isn't whole.
    """
    if value is None:
        return DEFAULT_SANITY_STEPS
    if _number(value) in (-1, math.inf):
        return math.inf
    steps = _whole(value)
    if steps is not None and steps >= 0:
        return steps
    raise MisconfigurationException(
        f"Trainer(num_sanity_val_steps={value!r}) is no number of batches: it takes an int >= 0 (0 switches the check "
        f"off), or -1 for all batches."
    )


def parse_check_val_every_n_epoch(value: Any) -> int | None:
    """Reads ``check_val_every_n_epoch``: an int of epochs, or None to count batches over the whole training.

    Raises:
        MisconfigurationException: for anything else.
    """
    if value is None:
        return None
    epochs = _number(value)
    if isinstance(epochs, int) and epochs >= 0:
        return epochs
    raise MisconfigurationException(
        f"Trainer(check_val_every_n_epoch={value!r}) is no number of epochs: it takes an int (1 is every epoch) or "
        f"None."
    )


def parse_val_check_interval(value: Any, check_val_every_n_epoch: int | None = 1) -> int | float | timedelta:
    """Reads ``val_check_interval``.

    Args:
        value: an int of training batches, a float fraction of the training epoch, None (read as 1.0), or a time: a
        timedelta, a dict of its keywords,
            or a text "DD:HH:MM:SS".
        check_val_every_n_epoch: None lets the interval run on over the epochs, which a fraction of an epoch can't.

    Raises:
        MisconfigurationException: for anything else.
    """
    interval: int | float | timedelta
    if isinstance(value, (timedelta, dict, str)):
        interval = _parse_time(value)
    else:
        interval = parse_limit("val_check_interval", value)
    if check_val_every_n_epoch is None and isinstance(interval, float):
        raise MisconfigurationException(
            f"Trainer(val_check_interval={interval}, check_val_every_n_epoch=None): without epochs the interval has to "
            f"be an int of training batches or a "
            "time (timedelta, dict of its keywords, 'DD:HH:MM:SS'), not a fraction of an epoch."
        )
    return interval


def _parse_time(value: timedelta | dict[str, float] | str) -> timedelta:
    """Reads a positive time for ``val_check_interval``."""
    if isinstance(value, str):
        match = _TIME.fullmatch(value.strip())
        if match is None:
            raise MisconfigurationException(
                f"Trainer(val_check_interval={value!r}) is no time: a text reads 'DD:HH:MM:SS', as in '00:01:00:00'."
            )
        days, hours, minutes, seconds = map(int, match.groups())
        time = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    elif isinstance(value, dict):
        try:
            time = timedelta(**value)
        except TypeError as error:
            raise MisconfigurationException(
                f"Trainer(val_check_interval={value!r}) is no time: the dict takes the keywords of timedelta ({error})."
            ) from None
    else:
        time = value
    if time <= timedelta():
        raise MisconfigurationException(
            f"Trainer(val_check_interval={value!r}) is no time between validations: it has to be above zero."
        )
    return time


def smallest_fraction(length: int) -> float:
    """The smallest float of which :func:`resolve_limit` makes one batch of ``length`` (at least 1)."""
    fraction = 1.0 / length
    while int(length * fraction) < 1:  # the quotient may have been rounded down
        fraction = math.nextafter(fraction, 1.0)
    return fraction


def resolve_limit(limit: int | float, length: int | float, *, name: str, loader: str) -> int | float:
    """The number of batches that a limit allows of a loader.

    Args:
        limit: as :func:`parse_limit` returns it.
        length: batches of the loader, inf when it can't tell.
        name: the Trainer's argument, for the error.
        loader: the loader's name, for the error.

    Returns:
        ``min(limit, length)`` for an int, ``int(length * limit)`` for a fraction; inf only for all batches of a loader
        without length.

    Raises:
        MisconfigurationException: for a fraction that rounds to no batch, and for a fraction other than 0.0 and 1.0 of
        a loader without length.
    """
    if limit == 0 or length == 0:
        return 0
    if isinstance(limit, int):
        return min(limit, length)
    if math.isinf(length):
        if limit == 1.0:
            return length
        raise MisconfigurationException(
            f"Trainer({name}={limit}) is a fraction of the batches of `{loader}`, which has no length: give a number "
            f"of batches as an int "
            f"(the smallest that uses the loader is 1), or 1.0 for all of them."
        )
    number = int(length * limit)
    if number == 0:
        raise MisconfigurationException(
            f"Trainer({name}={limit}) leaves no batch of `{loader}`: {limit} * {int(length)} batches is less than one. "
            f"The smallest valid fraction is {smallest_fraction(int(length))}, the smallest number of batches 1 (an "
            f"int)."
        )
    return number


def resolve_val_check_interval(
    interval: int | float | timedelta,
    num_training_batches: int | float,
    *,
    every_n_epochs: int | None = 1,
    validates: bool = True,
) -> int | float | None:
    """After how many training batches a fit validates.

    Args:
        interval: as :func:`parse_val_check_interval` returns it.
        num_training_batches: batches of the training epoch, limits applied; inf when unknown.
        every_n_epochs: ``check_val_every_n_epoch``; None counts batches over all epochs.
        validates: whether there is a validation at all; without one, no interval is too long.

    Returns:
        A number of batches; inf to validate at the end of the epoch; None when the time decides.

    Raises:
        ValueError: when the epoch is shorter than the interval.
        MisconfigurationException: for a fraction of an epoch of unknown length.
    """
    if isinstance(interval, timedelta):
        return None
    if isinstance(interval, int):
        if interval > num_training_batches and every_n_epochs is not None and validates:
            raise ValueError(
                f"Trainer(val_check_interval={interval}) is longer than the training epoch of {num_training_batches} "
                f"batches, so no validation would ever run. "
                "Give at most that number; `limit_val_batches=0` to switch validation off; or "
                "`check_val_every_n_epoch=None` to count the batches of all epochs."
            )
        return interval
    if math.isinf(num_training_batches):
        if interval == 1.0:
            return math.inf
        raise MisconfigurationException(
            f"Trainer(val_check_interval={interval}) is a fraction of a training epoch whose length is unknown "
            f"(`train_dataloader` has none): give an int of "
            "training batches, a time, or 1.0 for the end of the epoch."
        )
    return max(1, int(num_training_batches * interval))


def parse_batch_limits(
    *,
    limit_train_batches: Any = None,
    limit_val_batches: Any = None,
    limit_test_batches: Any = None,
    limit_predict_batches: Any = None,
    overfit_batches: Any = 0.0,
    val_check_interval: Any = None,
    check_val_every_n_epoch: Any = 1,
    num_sanity_val_steps: Any = None,
    fast_dev_run: Any = False,
) -> BatchLimits:
    """Reads the Trainer's keywords on numbers of batches together, since some overrule others.

    ``fast_dev_run=n`` sets every limit to n, the sanity check to 0 and the validation to the epoch's end.
    ``overfit_batches`` sets the limits of training and validation; an explicit ``limit_val_batches=0`` still switches
    validation off.

    Raises:
        MisconfigurationException: naming the keyword that is wrong.
    """
    given = {
        "limit_train_batches": limit_train_batches,
        "limit_val_batches": limit_val_batches,
        "limit_test_batches": limit_test_batches,
        "limit_predict_batches": limit_predict_batches,
    }
    train, val, test, predict = (parse_limit(name, value) for name, value in given.items())
    overfit = parse_overfit_batches(overfit_batches)
    every_n_epochs = parse_check_val_every_n_epoch(check_val_every_n_epoch)
    # Where no interval is given, nobody asked for a fraction: every epoch's number of batches is the interval.
    interval = 1.0 if val_check_interval is None else parse_val_check_interval(val_check_interval, every_n_epochs)
    sanity = parse_num_sanity_val_steps(num_sanity_val_steps)
    dry_run = parse_fast_dev_run(fast_dev_run)

    if dry_run:
        train = val = test = predict = dry_run
        sanity, interval = 0, 1.0
        if overfit is not None:
            fewest = min(dry_run, overfit.batches) if isinstance(overfit.batches, int) else dry_run
            overfit = replace(overfit, batches=fewest)
        return BatchLimits(train, val, test, predict, sanity, interval, overfit, dry_run)

    overfit_value = overfit_batches.batches if isinstance(overfit_batches, Overfit) else overfit_batches
    described = {**given, "overfit_batches": overfit_value, "val_check_interval": val_check_interval}
    notes = [line for name, value in described.items() if (line := describe_limit(name, value)) is not None]
    if overfit is not None:
        train = overfit.batches
        val = overfit.batches if val != 0 else 0
        overruled = [name for name in ("limit_train_batches", "limit_val_batches") if given[name] not in (None, 0)]
        if overruled:
            notes.append(
                f"`Trainer(overfit_batches={overfit.batches})` overrules "
                f"{' and '.join(f'`{name}`' for name in overruled)}."
            )
    return BatchLimits(train, val, test, predict, sanity, interval, overfit, dry_run, tuple(notes))
