"""Weights as they were drawn are told from weights that have learnt something."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from unstuck.measure.freshness import looks_drawn

DRAWN = {
    "linear": lambda: nn.Linear(64, 48).weight,
    "wide": lambda: nn.Linear(64, 2).weight,
    "convolution": lambda: nn.Conv2d(3, 8, 3).weight,
    "embedding with padding": lambda: nn.Embedding(40, 24, padding_idx=0).weight,
    "recurrent": lambda: nn.LSTM(24, 32).weight_hh_l0,
    "orthogonal": lambda: nn.init.orthogonal_(torch.empty(48, 64)),
    "small normal": lambda: nn.init.trunc_normal_(torch.empty(100, 60), std=0.02),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_every_usual_initialisation_looks_drawn(kind: str) -> None:
    torch.manual_seed(0)
    assert sum(looks_drawn(DRAWN[kind]()) is True for _ in range(50)) >= 48


def test_what_has_learnt_does_not() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    basis = torch.randn(3, 20)
    for _ in range(300):
        x = torch.randn(64, 3) @ basis
        loss = (model(x) - x[:, :16]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # not every matrix tells it, but one of a network's does
    assert False in [looks_drawn(item) for item in model.parameters()]


@pytest.mark.parametrize(
    "weight", [torch.randn(100), torch.randn(4, 4), torch.ones(20, 20), torch.full((20, 20), float("nan"))]
)
def test_nothing_is_said_where_nothing_can_be_told(weight: torch.Tensor) -> None:
    assert looks_drawn(weight) is None
