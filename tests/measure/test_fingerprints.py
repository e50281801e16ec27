"""Equal samples have equal numbers, wherever they stand and whatever they are padded with."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from unstuck.measure.fingerprints import COLUMNS, fingerprints, rows_of


@given(
    st.integers(1, 12), st.integers(1, 40), st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool])
)
def test_only_equal_rows_share_a_number(samples: int, width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(samples * 100 + width)
    rows = torch.randint(0, 3, (samples, width), generator=generator).to(dtype)
    numbers = fingerprints(rows)
    for i in range(samples):
        for j in range(samples):
            assert (numbers[i] == numbers[j]) == bool((rows[i] == rows[j]).all())


def test_padding_with_zeros_and_place_in_the_batch_do_not_count() -> None:
    short = torch.tensor([[3, 1, 2]])
    long = torch.tensor([[9, 9, 9, 9, 9], [3, 1, 2, 0, 0]])
    assert fingerprints(short)[0] == fingerprints(long)[1]


def test_long_samples_are_read_at_evenly_spread_places() -> None:
    rows = torch.zeros(2, 5 * COLUMNS)
    rows[0, -5] = 1.0
    first, second = fingerprints(rows)
    assert first != second


def test_samples_and_places_that_were_flattened_together_come_apart() -> None:
    flat = torch.arange(12)
    rows = rows_of(flat, 3)
    assert rows is not None and rows.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert rows_of(flat, 5) is None and rows_of(torch.tensor(1.0)) is None
