"""The store: what it keeps, against slow and obvious twins."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchmetrics
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from unstuck.errors import MisconfigurationException
from unstuck.messages import PossibleUserWarning
from unstuck.trainer.results.batch_size import extract_batch_size
from unstuck.trainer.results.holders import RunContext
from unstuck.trainer.results.options import LogOptions
from unstuck.trainer.results.store import ResultStore

BOTH = LogOptions(on_step=True, on_epoch=True)
EPOCH = LogOptions(on_step=False, on_epoch=True)


def new_store(training: bool = True, hook: str = "training_step", **context: Any) -> ResultStore:
    store = ResultStore(training, RunContext(**context))
    store.hook = hook
    store.begin_batch(None)
    return store


def epoch_values(store: ResultStore) -> dict[str, Tensor]:
    store.reach_epoch_end()
    return store.published().logged


def slow_mean(values: list[float], sizes: list[int]) -> float:
    total = torch.tensor(0.0)
    for value, size in zip(values, sizes, strict=True):
        total = total + torch.tensor(value) * size
    return (total / torch.tensor(sum(sizes))).item()


SLOW: dict[str, Callable[[list[float], list[int]], float]] = {
    "mean": slow_mean,
    "sum": lambda values, sizes: slow_mean(values, [1] * len(values)) * len(values),
    "max": lambda values, sizes: max(torch.tensor(values)).item(),
    "min": lambda values, sizes: min(torch.tensor(values)).item(),
}

numbers = st.floats(-1e6, 1e6, width=32)


@given(st.data(), st.sampled_from(["mean", "max", "min"]), st.integers(1, 5), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_epoch_values_have_the_bits_of_the_slow_way(
    data: st.DataObject, reduce_fx: str, width: int, steps: int
) -> None:
    rows = data.draw(st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=steps, max_size=steps))
    sizes = data.draw(st.lists(st.integers(1, 1000), min_size=steps, max_size=steps))
    together, alone = new_store(), new_store()
    options = EPOCH._replace(reduce_fx=reduce_fx)
    for row, size in zip(rows, sizes, strict=True):
        together.log_dict({f"v{i}": torch.tensor(value) for i, value in enumerate(row)}, options, size)
        for i, value in enumerate(row):
            alone.log(f"v{i}", torch.tensor(value), options, size)
    expected = {f"v{i}": SLOW[reduce_fx]([row[i] for row in rows], sizes) for i in range(width)}
    assert {name: value.item() for name, value in epoch_values(together).items()} == expected
    assert {name: value.item() for name, value in epoch_values(alone).items()} == expected


def test_a_sum_is_a_sum() -> None:
    store = new_store()
    for value in (1.0, 2.0, 4.0):
        store.log("a", torch.tensor(value), EPOCH._replace(reduce_fx="sum"), 100)
    assert epoch_values(store)["a"].item() == 7.0


@given(st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_changing_company_changes_no_value(companies: list[set[str]]) -> None:
    store, twin = new_store(), new_store()
    for step, names in enumerate(companies):
        values = {name: torch.tensor((step + 1) / (ord(name) - 90)) for name in sorted(names)}
        store.log_dict(values, BOTH, step + 1)
        for name, value in values.items():
            twin.log(name, value, BOTH, step + 1)
    assert store.published() == twin.published()
    assert epoch_values(store) == epoch_values(twin)
    store.reset()
    store.begin_batch(None)
    store.log("a", 1.0, BOTH)
    assert store.published().logged == {"a_step": torch.tensor(1.0)}


def test_values_of_other_dtypes_are_kept_apart() -> None:
    store = new_store()
    store.log("a", torch.tensor(0.1, dtype=torch.float64), EPOCH)
    store.log_dict({"a": torch.tensor(0.2), "b": torch.tensor(0.3)}, EPOCH)
    store.log_dict({"c": torch.tensor(0.5, dtype=torch.float64), "d": torch.tensor(0.25)}, EPOCH)
    assert {name: value.dtype for name, value in epoch_values(store).items()} == {
        "a": torch.float64,
        "b": torch.float32,
        "c": torch.float64,
        "d": torch.float32,
    }


def test_what_happens_to_a_tensor_later_does_not_matter() -> None:
    store = new_store()
    single, first, second = torch.tensor(1.0), torch.tensor(2.0), torch.tensor(3.0)
    store.log("single", single, BOTH)
    store.log_dict({"first": first, "second": second}, BOTH)
    for tensor in (single, first, second):
        tensor.zero_()
    logged = store.published().logged
    assert [value.item() for value in logged.values()] == [1.0, 2.0, 3.0]
    before = dict(logged)
    store.log("single", torch.tensor(9.0), BOTH)
    assert before["single_step"].item() == 1.0


def test_no_graph_is_kept_unless_wanted() -> None:
    store = new_store()
    weight = torch.ones((), requires_grad=True)
    store.log("plain", weight * 2, BOTH)
    store.log_dict({"a": weight * 3, "b": weight * 4}, BOTH)
    store.log("graph", weight * 5, BOTH._replace(enable_graph=True))
    step = store.published().logged
    assert {name for name, value in step.items() if value.requires_grad} == {"graph_step"}
    assert not any(value.requires_grad for value in epoch_values(store).values())


def test_sums_begun_in_inference_mode_go_on_outside() -> None:
    store = new_store(hook="validation_step")
    with torch.inference_mode():
        store.log_dict({"a": torch.tensor(1.0), "b": torch.tensor(2.0)}, EPOCH)
    store.log_dict({"a": torch.tensor(3.0), "b": torch.tensor(4.0)}, EPOCH)
    assert {name: value.item() for name, value in epoch_values(store).items()} == {"a": 2.0, "b": 3.0}


def test_memory_does_not_grow_with_the_steps() -> None:
    store = new_store()
    for _ in range(50):
        store.log("a", torch.tensor(1.0), BOTH)
        store.log_dict({"b": torch.tensor(1.0), "c": torch.tensor(1.0)}, BOTH)
    sizes = [holder.total.numel() for holder in store._holders()]
    assert sizes == [1, 2]
    assert len(store._routes) == 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("reduce_fx", ["mean", "sum", "max", "min"])
def test_non_finite_values_reach_the_epoch(value: float, reduce_fx: str) -> None:
    store = new_store()
    for number in (1.0, value, 2.0):
        store.log("a", torch.tensor(number), EPOCH._replace(reduce_fx=reduce_fx))
    result = epoch_values(store)["a"].item()
    expected = {"mean": value, "sum": value, "max": value, "min": 1.0 if value == math.inf else value}[reduce_fx]
    assert result == expected or (math.isnan(result) and math.isnan(expected))


def test_nothing_logged_is_nothing_published() -> None:
    store = new_store()
    store.log_dict({}, BOTH)
    assert store.published().logged == {}
    store.reset()
    assert epoch_values(store) == {}


def test_steps_that_log_nothing_take_no_part_in_the_mean() -> None:
    store = new_store()
    for step, value in enumerate((1.0, None, 4.0)):
        store.begin_batch(torch.zeros(step + 1, 2))
        if value is not None:
            store.log("a", torch.tensor(value), EPOCH)
        store.end_batch()
    assert epoch_values(store)["a"].item() == (1.0 * 1 + 4.0 * 3) / 4


# Wrong use.


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"b": 1.0}, "log_dict"),
        ("text", "str"),
        (None, "NoneType"),
        ([1.0], "list"),
        (torch.zeros(2), r"\(2,\)"),
        (torch.zeros(0), r"\(0,\)"),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_what_is_no_scalar_is_refused(value: Any, part: str, again: bool) -> None:
    store = new_store()
    if again:
        store.log("name", 1.0, BOTH)
        store.log_dict({"x": 1.0, "y": 1.0}, BOTH)
    with pytest.raises(ValueError, match=rf"'name'.*{part}"):
        store.log("name", value, BOTH)
    with pytest.raises(ValueError, match=rf"'y'.*{part}"):
        store.log_dict({"x": 1.0, "y": value}, BOTH)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (LogOptions(reduce_fx="median"), "median"),
        (LogOptions(reduce_fx=torch.median), "median"),
        (LogOptions(on_step=False, on_epoch=False), "on_step=False, on_epoch=False"),
    ],
)
def test_wrong_options_are_told(options: LogOptions, part: str) -> None:
    with pytest.raises(MisconfigurationException, match=part):
        new_store().log("a", 1.0, options)


@pytest.mark.parametrize("hook", [None, "predict_step", "on_fit_start", "configure_optimizers", "setup"])
def test_where_nothing_can_be_logged(hook: str | None) -> None:
    store = new_store()
    store.hook = hook
    for log in (lambda: store.log("a", 1.0, LogOptions()), lambda: store.log_dict({"a": 1, "b": 2}, LogOptions())):
        with pytest.raises(MisconfigurationException, match=str(hook or "no hook")):
            log()


def test_one_key_has_one_meaning() -> None:
    store = new_store()
    store.log("a", 1.0, BOTH)
    with pytest.raises(MisconfigurationException, match=r"'a'.*training_step"):
        store.log("a", 1.0, BOTH._replace(prog_bar=True))
    with pytest.raises(MisconfigurationException, match=r"'a'.*training_step"):
        store.log_dict({"a": 1.0, "b": 1.0}, EPOCH)


def test_reserved_names_are_refused() -> None:
    with pytest.raises(MisconfigurationException, match="dataloader_idx"):
        new_store().log("loss/dataloader_idx_0", 1.0, BOTH)


def test_a_missing_logger_is_told() -> None:
    store = new_store(has_logger=False)
    with pytest.warns(UserWarning, match="'a'.*no logger"):
        store.log("a", 1.0, BOTH._replace(logger=True))
    store.log("b", 1.0, BOTH)


def test_integers_are_converted_with_a_warning() -> None:
    store = new_store()
    with pytest.warns(UserWarning, match=r"'a'.*int64.*float32"):
        store.log("a", torch.tensor(3), BOTH)
    assert store.published().logged["a_step"].dtype == torch.float32


# Batch sizes.


@dataclasses.dataclass
class Sample:
    image: Tensor
    label: Tensor


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (torch.zeros(3, 2), 3),
        (torch.zeros(()), 1),
        ([torch.zeros(3), torch.zeros(3, 1)], 3),
        ({"a": {"b": torch.zeros(4)}}, 4),
        (Sample(torch.zeros(5, 1), torch.zeros(5)), 5),
        ("four", 4),
        ((1, [2.0, None, torch.zeros(6)]), 6),
    ],
)
def test_batch_size_is_found(batch: Any, size: int) -> None:
    assert extract_batch_size(batch) == size


def test_batch_size_that_is_ambiguous_or_nowhere() -> None:
    with pytest.warns(UserWarning, match="3 is taken"):
        assert extract_batch_size([torch.zeros(3), torch.zeros(4)]) == 3
    with pytest.raises(MisconfigurationException, match="batch_size"):
        extract_batch_size([1, 2])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RecursionError, match="batch_size"):
        extract_batch_size(endless)


# Metric objects.


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.accuracy = torchmetrics.MeanMetric()
        self.inner = nn.ModuleDict({"other": torchmetrics.SumMetric()})
        self.several = torchmetrics.MetricCollection(
            {"mean": torchmetrics.MeanMetric(), "max": torchmetrics.MaxMetric()}, prefix="train_"
        )


def test_metric_objects_keep_their_own_state() -> None:
    module = Classifier()
    store = new_store(module=module)
    steps = []
    for value in (1.0, 2.0, 6.0):
        module.accuracy(torch.tensor(value))
        module.inner["other"](torch.tensor(value))
        store.log("accuracy", module.accuracy, BOTH)
        store.log("other", module.inner["other"], EPOCH)
        steps.append(store.published().logged["accuracy_step"].item())
    assert steps == [1.0, 2.0, 6.0]
    assert {name: value.item() for name, value in epoch_values(store).items()} == {"accuracy_epoch": 3.0, "other": 9.0}
    store.reset()
    assert not module.accuracy.update_called
    assert epoch_values(store) == {}


def test_metric_collections_are_logged_by_their_own_names() -> None:
    module = Classifier()
    store = new_store(module=module)
    for value in (1.0, 5.0):
        module.several.update(torch.tensor(value))
        store.log_dict(module.several, EPOCH)
    assert {name: value.item() for name, value in epoch_values(store).items()} == {"train_max": 5.0, "train_mean": 3.0}


def test_metrics_and_tensors_in_one_call() -> None:
    module = Classifier()
    store = new_store(module=module)
    for value in (1.0, 5.0):
        module.accuracy(torch.tensor(value))
        store.log_dict({"metric": module.accuracy, "tensor": torch.tensor(value), "number": value}, EPOCH)
    values = epoch_values(store)
    assert {name: value.item() for name, value in values.items()} == dict.fromkeys(("metric", "tensor", "number"), 3.0)


def test_a_metric_that_nobody_owns_is_refused() -> None:
    store = new_store(module=Classifier())
    with pytest.raises(MisconfigurationException, match=r"'a'.*accuracy.*metric_attribute"):
        store.log("a", torchmetrics.MeanMetric(), EPOCH)
    store.log("a", torchmetrics.MeanMetric(), EPOCH._replace(metric_attribute="elsewhere.mean"))


def test_a_key_is_either_metric_or_value() -> None:
    module = Classifier()
    store = new_store(module=module)
    store.log("a", 1.0, EPOCH)
    with pytest.raises(MisconfigurationException, match="'a'"):
        store.log("a", module.accuracy, EPOCH)
    module.accuracy.update(1.0)
    store.log("b", module.accuracy, EPOCH._replace(metric_attribute="accuracy"))
    for attribute in (None, "accuracy"):
        with pytest.raises(MisconfigurationException, match="'b'"):
            store.log("b", 1.0, EPOCH._replace(metric_attribute=attribute))


def test_a_metric_must_compute_a_tensor() -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.metric = torchmetrics.MetricCollection([torchmetrics.MeanMetric()])["MeanMetric"]
            self.metric.compute = lambda: {"a": 1}

    module = Module()
    store = new_store(module=module)
    module.metric.update(1.0)
    store.log("m", module.metric, EPOCH)
    with pytest.raises(ValueError, match=r"'m'.*tensor"):
        epoch_values(store)


# Several processes, played by a function.


class FakeProcesses:
    """Reduces with what the other processes would have: this process's values plus an offset."""

    def __init__(self, others: list[float]) -> None:
        self.others = others
        self.calls: list[tuple[int, str]] = []

    def __call__(self, tensor: Tensor, group: Any, operation: str) -> Tensor:
        self.calls.append((tensor.numel(), operation))
        everyone = torch.stack([tensor, *(tensor + other for other in self.others)])
        return {"mean": everyone.mean(0), "sum": everyone.sum(0), "max": everyone.amax(0), "min": everyone.amin(0)}[
            operation
        ]


def test_synced_values_are_reduced_together() -> None:
    reduce = FakeProcesses([2.0])
    store = new_store(reduce=reduce)
    options = BOTH._replace(sync_dist=True)
    store.log_dict({name: torch.tensor(1.0) for name in "abc"}, options, 4)
    assert {value.item() for value in store.published().logged.values()} == {2.0}
    assert reduce.calls == [(3, "mean")]
    # Sums of 4 and 6, weights of 4 and 6.
    assert {value.item() for value in epoch_values(store).values()} == {1.0}


@pytest.mark.parametrize(("reduce_fx", "expected"), [("sum", 5.0 + 6.0), ("max", 6.0), ("min", 5.0)])
def test_synced_reductions(reduce_fx: str, expected: float) -> None:
    store = new_store(reduce=FakeProcesses([1.0]))
    store.log("a", 5.0, EPOCH._replace(sync_dist=True, reduce_fx=reduce_fx))
    assert epoch_values(store)["a"].item() == expected


def test_values_of_rank_zero_only_are_not_reduced() -> None:
    reduce = FakeProcesses([1.0])
    store = new_store(reduce=reduce)
    store.log("a", 5.0, EPOCH._replace(sync_dist=True, rank_zero_only=True))
    assert epoch_values(store)["a"].item() == 5.0
    assert reduce.calls == []


def test_unsynced_epoch_values_in_a_group_of_processes_are_told(tmp_path: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        store = new_store()
        store.log("a", 1.0, EPOCH)
        with pytest.warns(PossibleUserWarning, match="'a'.*sync_dist=True"):
            epoch_values(store)
    finally:
        torch.distributed.destroy_process_group()
