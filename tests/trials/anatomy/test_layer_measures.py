"""Numbers of single operations: units that are off, samples apart, what normalisations work with, equal rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from unstuck.trials.anatomy.layers import measured_of, spreads_of
from unstuck.trials.anatomy.units import units_of


def test_a_unit_that_is_on_once_is_alive() -> None:
    taken = -torch.ones(6, 5)
    taken[3, 2] = 1.0
    units = units_of("relu", {}, taken, taken.relu(), False)
    assert units is not None
    assert (units.kind, units.count, units.off, units.samples) == ("rectifier", 5, 4, 6)
    assert units.mask == format(0b11011, "x")
    assert units.share == pytest.approx(29 / 30)


@pytest.mark.parametrize(("channels_first", "count"), [(True, 3), (False, 7)])
def test_units_of_three_dimensions_lie_where_the_layer_before_has_them(channels_first: bool, count: int) -> None:
    taken = torch.randn(4, 3, 7)
    units = units_of("relu", {}, taken, taken.relu(), channels_first)
    assert units is not None
    assert (units.count, units.samples) == (count, taken.numel() // count)


def test_channels_of_images_are_units() -> None:
    taken = torch.randn(2, 3, 5, 5)
    taken[:, 1] = -1.0
    units = units_of("clamp_min", {"min": 0}, taken, taken.clamp(min=0), False)
    assert units is not None
    assert (units.count, units.off, units.samples) == (3, 1, 50)


@pytest.mark.parametrize(
    ("name", "settings", "function"),
    [
        ("leaky_relu", {"negative_slope": 0.1}, lambda x: nn.functional.leaky_relu(x, 0.1)),
        ("elu", {}, nn.functional.elu),
        ("clamp_min", {"min": 1e-6}, lambda x: x.clamp(min=1e-6)),
        ("clamp", {"min": 0.0, "max": 1.0}, lambda x: x.clamp(0, 1)),
        ("exp", {}, torch.exp),
    ],
)
def test_functions_without_units_that_are_off(name: str, settings: dict, function) -> None:
    taken = torch.randn(4, 4)
    assert units_of(name, settings, taken, function(taken), False) is None


@pytest.mark.parametrize(("name", "function"), [("gelu", nn.functional.gelu), ("silu", nn.functional.silu)])
def test_smooth_rectifiers_are_off_far_below_zero_only(name: str, function) -> None:
    for level, off in ((-1.0, 0), (-20.0, 3)):
        taken = torch.full((4, 3), level)
        units = units_of(name, {}, taken, function(taken), False)
        assert units is not None
        assert units.off == off


@pytest.mark.parametrize(("name", "function"), [("sigmoid", torch.sigmoid), ("tanh", torch.tanh)])
def test_flat_ends(name: str, function) -> None:
    taken = torch.tensor([[8.0, 0.0, -8.0], [-9.0, 0.5, -8.0]])
    units = units_of(name, {}, taken, function(taken), False)
    assert units is not None
    assert (units.kind, units.off) == (name, 2)
    assert units.share == pytest.approx(4 / 6)


def test_relu6_is_a_rectifier_and_a_symmetric_hardtanh_is_not() -> None:
    taken = torch.full((4, 2), -1.0)
    six = units_of("hardtanh", {"min_val": 0.0, "max_val": 6.0}, taken, taken.clamp(0, 6), False)
    two = units_of("hardtanh", {"min_val": -1.0, "max_val": 1.0}, taken, taken, False)
    assert six is not None
    assert two is not None
    assert (six.kind, six.off, two.kind, two.off) == ("rectifier", 2, "tanh", 2)


def test_samples_apart() -> None:
    result = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    assert measured_of("addmm", {}, [], [result])["apart"] == pytest.approx(math.sqrt(0.5))
    assert measured_of("relu", {}, [], [result]) == {}


def test_a_batch_norm_is_compared_with_its_running_statistics() -> None:
    torch.manual_seed(0)
    layer = nn.BatchNorm2d(3)
    taken = 4.0 + 2.0 * torch.randn(64, 3, 5, 5)
    given = {"training": True, "momentum": 0.0, "eps": 0.0}
    sources = [("input", 0, taken), ("running_mean", 0, layer.running_mean), ("running_var", 0, layer.running_var)]
    found = measured_of("batch_norm", given, sources, [taken])
    assert found["values per statistic"] == 64 * 25
    assert found["evaluation shift"] == pytest.approx(4.0, rel=0.02)
    assert found["evaluation scale"] == pytest.approx(2.0, rel=0.02)
    assert found["passed"] == pytest.approx(1.0)
    assert measured_of("batch_norm", {**given, "training": False}, sources, [taken]) == {}


def test_groups_and_layers_count_their_values() -> None:
    taken = torch.randn(4, 6, 3)
    group = measured_of("group_norm", {"group": 3, "eps": 1e-5}, [("input", 0, taken)], [taken])
    layer = measured_of("layer_norm", {"normalized_shape": [3], "eps": 1e4}, [("input", 0, taken)], [taken])
    assert group["values per statistic"] == 6
    assert layer["values per statistic"] == 3
    assert layer["passed"] < 1e-3


def test_equal_rows_and_columns() -> None:
    torch.manual_seed(0)
    assert spreads_of(torch.full((4, 3), 0.1)) == (pytest.approx(0.0, abs=1e-12), pytest.approx(0.0, abs=1e-12))
    rows, columns = spreads_of(torch.randn(1, 5).expand(4, 5)) or (None, None)
    assert rows == pytest.approx(0.0, abs=1e-12)
    assert columns is not None
    assert columns > 0.5
    gates = torch.cat([torch.zeros(4, 3), torch.ones(4, 3)])
    assert (spreads_of(gates, 2) or (1.0, 1.0))[0] == 0.0
    assert (spreads_of(gates, 1) or (0.0, 0.0))[0] > 0.5
    assert min(spreads_of(torch.randn(500, 300)) or (0.0,)) > 0.5
    assert spreads_of(torch.randn(5)) is None
