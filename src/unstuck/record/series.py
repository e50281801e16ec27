"""A table of numbers over steps that never grows beyond its capacity: old rows are joined into buckets, new ones stay.

A bucket keeps the smallest, the largest and the last value of each column over the steps that it stands for. NaN means
that a column had no value.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["Bucket", "Series", "Thinner", "join"]

_NONE = float("nan")


class Bucket(NamedTuple):
    """Consecutive rows of a table.

    Attributes:
        start: step of the first row.
        end: step of the last row.
        count: number of rows; with one, ``low``, ``high`` and ``last`` are the same object.
        low: smallest value of each column.
        high: largest value of each column.
        last: last value of each column that had one.
    """

    start: int
    end: int
    count: int  # type: ignore[assignment] # rows are what is counted here, not the tuple's items
    low: array[float]
    high: array[float]
    last: array[float]


def join(a: Bucket, b: Bucket) -> Bucket:
    """One bucket for ``a`` and the rows after it, ``b``."""
    kind = a.last.typecode
    if len(a.last) == 1:  # a loss; there are many of them
        (low, high, last), (below, above, later) = (a.low[0], a.high[0], a.last[0]), (b.low[0], b.high[0], b.last[0])
        return Bucket(
            a.start,
            b.end,
            a.count + b.count,
            array(kind, (low if low < below or below != below else below,)),
            array(kind, (high if high > above or above != above else above,)),
            array(kind, (last if later != later else later,)),
        )
    return Bucket(
        a.start,
        b.end,
        a.count + b.count,
        array(kind, [x if x < y or y != y else y for x, y in zip(a.low, b.low, strict=True)]),
        array(kind, [x if x > y or y != y else y for x, y in zip(a.high, b.high, strict=True)]),
        array(kind, [x if y != y else y for x, y in zip(a.last, b.last, strict=True)]),
    )


class Series:
    """Rows of ``columns`` numbers, each at a step; steps never fall.

    Args:
        columns: numbers in a row.
        capacity: buckets that are kept, at least 4; the newer half are single rows.
        kind: ``f`` for four bytes a number, ``d`` for eight.
    """

    def __init__(self, columns: int, capacity: int = 4096, kind: str = "f") -> None:
        self.columns = columns
        self.capacity = max(4, capacity)
        self.kind = kind
        self.buckets: list[Bucket] = []

    def __len__(self) -> int:
        return len(self.buckets)

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self.buckets)

    def add(self, step: int, row: Sequence[float]) -> Bucket:
        """Append a row and return its bucket."""
        values = array(self.kind, row)
        if len(values) != self.columns:
            raise ValueError(f"the table has {self.columns} columns, the row {len(values)}")
        bucket = Bucket(step, step, 1, values, values, values)
        self.add_bucket(bucket)
        return bucket

    def add_bucket(self, bucket: Bucket) -> None:
        """Append rows that are joined already."""
        self.buckets.append(bucket)
        self._shorten()

    def add_numbers(self, numbers: Iterable[tuple[int, float]]) -> None:
        """Append many (step, value) to a table of one column."""
        kind = self.kind
        self.buckets += [Bucket(step, step, 1, row := array(kind, (value,)), row, row) for step, value in numbers]
        self._shorten()

    def _shorten(self) -> None:
        while len(self.buckets) > self.capacity:
            half = self.capacity // 4 * 2
            older = self.buckets[:half]
            self.buckets[:half] = [join(older[index], older[index + 1]) for index in range(0, half, 2)]

    def cut(self, step: int) -> Series:
        """The table as it was before ``step``; a bucket that reaches beyond is left out."""
        shorter = Series(self.columns, self.capacity, self.kind)
        shorter.buckets = [bucket for bucket in self.buckets if bucket.end < step]
        return shorter

    def lasts(self, column: int) -> list[tuple[int, float]]:
        """(step, last value) of each bucket in which the column had a value."""
        return [(item.end, item.last[column]) for item in self.buckets if item.last[column] == item.last[column]]

    def highs(self, column: int) -> list[tuple[int, float]]:
        """(first step, largest value) of each bucket in which the column had a value."""
        return [(item.start, item.high[column]) for item in self.buckets if item.high[column] == item.high[column]]

    # -- as plain data -----------------------------------------------------------------------------------------------

    def encode(self) -> dict[str, Any]:
        """Strict-JSON form; numbers as base64 of their bytes, so that nothing is rounded and little is written."""
        single = all(item.count == 1 for item in self.buckets)
        return {
            "columns": self.columns,
            "capacity": self.capacity,
            "kind": self.kind,
            "starts": [item.start for item in self.buckets],
            "ends": None if single else [item.end for item in self.buckets],
            "counts": None if single else [item.count for item in self.buckets],
            "low": None if single else _pack(self.kind, (item.low for item in self.buckets)),
            "high": None if single else _pack(self.kind, (item.high for item in self.buckets)),
            "last": _pack(self.kind, (item.last for item in self.buckets)),
        }

    @classmethod
    def decode(cls, event: dict[str, Any]) -> Series:
        """The series that :meth:`encode` has written."""
        series = cls(event["columns"], event["capacity"], event["kind"])
        starts = event["starts"]
        last = _unpack(series.kind, event["last"], series.columns, len(starts))
        if event["counts"] is None:
            series.buckets = [Bucket(step, step, 1, row, row, row) for step, row in zip(starts, last, strict=True)]
            return series
        low = _unpack(series.kind, event["low"], series.columns, len(starts))
        high = _unpack(series.kind, event["high"], series.columns, len(starts))
        rows = zip(starts, event["ends"], event["counts"], low, high, last, strict=True)
        series.buckets = [Bucket(*row) for row in rows]
        return series


class Thinner:
    """What goes to disk while a run lasts: every row at first, then ever wider buckets, so that a file stays small.

    Args:
        columns: numbers in a row.
        capacity: buckets after which their width doubles.
        kind: as for :class:`Series`.
    """

    def __init__(self, columns: int, capacity: int = 4096, kind: str = "f") -> None:
        self._columns, self._capacity, self._kind = columns, capacity, kind
        self._width = 1
        self._given = 0
        self._open: Bucket | None = None
        self._ready: list[Bucket] = []

    def add(self, bucket: Bucket) -> None:
        """Take the next row."""
        self._open = bucket if self._open is None else join(self._open, bucket)
        if self._open.count < self._width:
            return
        self._ready.append(self._open)
        self._open = None
        self._given += 1
        if self._given % self._capacity == 0:
            self._width *= 2

    def take(self) -> Series | None:
        """What is ready to be written, None if nothing is."""
        if not self._ready:
            return None
        block = Series(self._columns, max(4, len(self._ready)), self._kind)
        block.buckets, self._ready = self._ready, []
        return block


def _pack(kind: str, rows: Iterable[array[float]]) -> str:
    values: array[float] = array(kind)
    for row in rows:
        values.extend(row)
    return base64.b64encode(values.tobytes()).decode("ascii")


def _unpack(kind: str, text: str, columns: int, count: int) -> list[array[float]]:
    values: array[float] = array(kind)
    values.frombytes(base64.b64decode(text))
    return [values[index * columns : (index + 1) * columns] for index in range(count)]
