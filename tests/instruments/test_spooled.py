"""Copies of tensors come back as they were, from memory or from a file, whatever happened to the originals since."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
import torch

from unstuck.instruments import spooled
from unstuck.instruments.spooled import SpooledTensors


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_copies_are_what_was_there(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooled, "_IN_MEMORY", limit)
    flat = torch.randn(100)
    originals = [
        torch.nn.Parameter(torch.randn(3, 4)),
        flat[10:20],
        torch.randn(5, dtype=torch.bfloat16),
        torch.randn(4, 6).t(),
        torch.arange(3),
    ]
    wanted = [item.detach().clone() for item in originals]
    copies = SpooledTensors(originals)
    for item in originals:
        item.detach().zero_()
    found = copies.take()
    assert [item.dtype for item in found] == [item.dtype for item in wanted]
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert not any(item.requires_grad for item in found)
    assert copies.take() == ()


def test_large_copies_take_no_memory_and_leave_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(spooled, "_IN_MEMORY", 1024)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copies = SpooledTensors([torch.zeros(10_000)])
    assert copies._copies is None
    assert list(tmp_path.iterdir()) == []
    copies.close()
    assert copies.take() == ()


def test_a_view_is_kept_without_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooled, "_IN_MEMORY", 0)
    copies = SpooledTensors([torch.zeros(1_000_000)[:10]])
    assert copies._file is not None
    assert copies._file.tell() < 10_000


def test_a_folder_that_takes_nothing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(spooled, "_IN_MEMORY", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError):
        SpooledTensors([torch.zeros(10)])
