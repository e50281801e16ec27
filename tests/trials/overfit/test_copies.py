"""Models are copied with what they keep, and refused with the attribute that can't be."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from unstuck.errors import MisconfigurationException
from unstuck.trials.overfit.copies import copied_model, copied_optimizer


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


class Keeping(nn.Module):
    """Keeps its last features, with their graph."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()
        self.all: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.net(x)
        self.all.append(self.last)
        return self.last


def old_weight_norm() -> nn.Module:
    model = network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.nn.utils.weight_norm(model[0])
    return model


@pytest.mark.parametrize("make", [Keeping, old_weight_norm])
def test_results_of_operations_are_copied_as_plain_numbers(make: Any) -> None:
    model = make()
    output = model(torch.randn(5, 3))
    clone, copies = copied_model(model)
    assert set(copies) == {id(item) for item in model.parameters()}
    assert all(copies[id(a)] is b for a, b in zip(model.parameters(), clone.parameters(), strict=True))
    clone(torch.randn(5, 3)).sum().backward()
    assert all(item.grad is not None for item in clone.parameters())
    assert all(item.grad is None for item in model.parameters())
    output.sum().backward()  # the user's own graph is whole
    if isinstance(model, Keeping):
        assert model.last is output
        assert clone.all[0].grad_fn is None
        assert torch.equal(clone.all[0], output)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_the_optimizer_of_a_scripted_model_holds_the_copy() -> None:
    model = torch.jit.script(network())
    model[2].weight.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    clone, copies = copied_model(model)
    made = copied_optimizer(optimizer, copies)
    held = {id(item) for group in made.param_groups for item in group["params"]}
    assert held == {id(item) for item in clone.parameters()}
    assert all(item.is_leaf for item in clone.parameters())
    assert [item.requires_grad for item in clone.parameters()] == [item.requires_grad for item in model.parameters()]


def test_shared_parameters_stay_shared() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    clone, copies = copied_model(model)
    assert clone[0].weight is clone[1].weight is copies[id(model[0].weight)]


@pytest.mark.parametrize(("make", "kind"), [(threading.Lock, "lock"), (tempfile.TemporaryFile, "Buffered")])
def test_what_can_not_be_copied_is_named(make: Any, kind: str) -> None:
    model, value = network(), make()
    model[2].journal = {"to": value}
    with (
        contextlib.closing(value) if hasattr(value, "close") else contextlib.nullcontext(),
        pytest.raises(MisconfigurationException, match=rf"attribute `2.journal` \({kind}\w*\)"),
    ):
        copied_model(model)
