"""Device statistics and throughput."""

import sys
from typing import Any

import pytest
import torch
from lightning.fabric.utilities.throughput import Throughput as ReferenceThroughput
from lightning.pytorch.callbacks import DeviceStatsMonitor as ReferenceStats
from lightning.pytorch.callbacks import ThroughputMonitor as ReferenceMonitor

from tests.callbacks.recording_logger import make_logger
from tests.trainer.side_by_side import OURS, THEIRS, Library, base_module, loader, run
from unstuck.callbacks import DeviceStatsMonitor, ThroughputMonitor
from unstuck.errors import MisconfigurationException
from unstuck.utilities.throughput import Throughput, get_available_flops, measure_flops

pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


def keys_and_steps(library: Library, callback: Any, **keywords: Any) -> list[Any]:
    logger = make_logger(library)

    def make(library: Library) -> Any:
        module = base_module(library)()
        module.flops_per_batch = 1000
        return module

    run(
        library,
        make,
        val=lambda: loader(8, shuffle=False),
        max_epochs=2,
        logger=logger,
        log_every_n_steps=2,
        callbacks=[callback],
        **keywords,
    )
    return [(step, sorted(row)) for step, row in logger.rows if not any("loss" in name for name in row)]


@pytest.mark.parametrize("cpu_stats", [None, True, False])
def test_device_stats_have_lightnings_keys(cpu_stats: bool | None) -> None:
    pytest.importorskip("psutil")
    own = keys_and_steps(OURS, DeviceStatsMonitor(cpu_stats))
    assert own == keys_and_steps(THEIRS, ReferenceStats(cpu_stats))
    assert bool(own) == (cpu_stats is not False)
    if own:
        assert own[0][1][0] == "DeviceStatsMonitor.on_train_batch_start/cpu_percent"


def test_device_stats_need_a_logger_and_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MisconfigurationException, match="logger"):
        run(OURS, max_epochs=1, callbacks=[DeviceStatsMonitor()])
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"unstuck\[stats\]"):
        run(OURS, max_epochs=1, logger=make_logger(OURS), callbacks=[DeviceStatsMonitor()])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_throughput_has_lightnings_keys(accumulate: int) -> None:
    options: dict[str, Any] = {
        "batch_size_fn": lambda batch: len(batch[0]),
        "length_fn": lambda batch: batch[0].numel(),
        "window_size": 3,
        "separator": "|",
    }
    own = keys_and_steps(OURS, ThroughputMonitor(**options), accumulate_grad_batches=accumulate)
    theirs = keys_and_steps(THEIRS, ReferenceMonitor(**options), accumulate_grad_batches=accumulate)
    assert [keys for _, keys in own] == [keys for _, keys in theirs]
    assert [step for step, keys in own if "train|time" in keys] == [
        step for step, keys in theirs if "train|time" in keys
    ]
    assert any("train|device|items_per_sec" in keys for _, keys in own)


def test_throughput_counts_and_leaves_validation_out() -> None:
    logger = make_logger(OURS)
    monitor = ThroughputMonitor(lambda batch: len(batch[0]), window_size=2)
    with pytest.warns(UserWarning, match="flops_per_batch"):
        run(
            OURS,
            val=lambda: loader(8, shuffle=False),
            max_epochs=2,
            num_sanity_val_steps=2,
            logger=logger,
            log_every_n_steps=1,
            callbacks=[monitor],
        )
    rows = [row for _, row in logger.rows if "train/samples" in row]
    assert [row["train/samples"] for row in rows] == [4 * (index + 1) for index in range(12)]
    times = [row["train/time"] for row in rows]
    assert times == sorted(times)
    assert all(row["train/device/samples_per_sec"] > 0 for row in rows[1:])
    assert any("validate/batches" in row for _, row in logger.rows)


@pytest.mark.parametrize("world_size", [1, 4])
def test_rates_are_lightnings(world_size: int) -> None:
    options: dict[str, Any] = {"available_flops": 1e6, "world_size": world_size, "window_size": 4}
    own, other = Throughput(**options), ReferenceThroughput(**options)
    for step in range(1, 8):
        update = {"time": step * 0.5 + step**2, "batches": step, "samples": step * 3, "lengths": step * 9}
        for each in (own, other):
            each.update(**update, flops=100 * step)
        assert own.compute() == pytest.approx(other.compute())
    own.reset()
    own.update(time=1.0, batches=1, samples=1)
    assert own.compute() == {"time": 1.0, "batches": 1, "samples": 1}


def test_what_throughput_refuses() -> None:
    for options in ({"world_size": 0}, {"window_size": 1}):
        with pytest.raises(ValueError, match="should be at least"):
            Throughput(**options)
    throughput = Throughput()
    throughput.update(time=1.0, batches=1, samples=2, lengths=3)
    with pytest.raises(ValueError, match="`time` should grow"):
        throughput.update(time=1.0, batches=2, samples=4, lengths=6)
    with pytest.raises(ValueError, match="fewer samples"):
        throughput.update(time=2.0, batches=5, samples=4, lengths=6)
    throughput.update(time=3.0, batches=2, samples=4)
    with pytest.raises(ValueError, match="at every update"):
        throughput.update(time=4.0, batches=3, samples=5, lengths=9)


def test_flops() -> None:
    with torch.device("meta"):
        model, x = torch.nn.Linear(8, 4), torch.randn(2, 8)
    assert measure_flops(model, lambda: model(x)) == 2 * 2 * 8 * 4
    assert measure_flops(model, lambda: model(x), torch.sum) == 2 * measure_flops(model, lambda: model(x))
    assert get_available_flops(torch.device("cpu"), torch.float32) is None


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("NVIDIA H200", torch.bfloat16, 989.4e12),
        ("NVIDIA H100 PCIe", torch.float16, 756e12),
        ("NVIDIA A100-SXM4-80GB", torch.float32, 19.5e12),
        ("NVIDIA A40", torch.float64, None),
        ("Tesla T4", torch.float16, 65e12),
        ("Riva 128", torch.float32, None),
    ],
)
def test_peaks(name: str, dtype: torch.dtype, expected: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert get_available_flops(torch.device("cuda"), dtype) == expected
