"""Profilers: what is measured, what the reports say, and that they cost nothing when off."""

import pickle
import pstats
import re
import time
from pathlib import Path
from typing import Any

import lightning.pytorch.callbacks as reference_callbacks
import lightning.pytorch.profilers as reference
import pytest
import torch

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, THEIRS, Library, base_module, compare, loader, run
from unstuck.errors import MisconfigurationException
from unstuck.loggers import CSVLogger
from unstuck.profilers import (
    AdvancedProfiler,
    PassThroughProfiler,
    PyTorchProfiler,
    SimpleProfiler,
    profiled,
    profiled_batches,
)
from unstuck.trainer.hooks import bind_hook

pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


def own_steps(library: Library) -> Any:
    class Own(base_module(library)):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            with self.trainer.profiler.profile("my part"):
                return super().training_step(batch, batch_idx)

        def on_train_epoch_start(self) -> None: ...

        def configure_gradient_clipping(self, *args: Any, **kwargs: Any) -> None:
            return super().configure_gradient_clipping(*args, **kwargs)

    return Own()


def both_profiled(method: str = "fit") -> tuple[SimpleProfiler, Any]:
    found = []
    for library, cls in ((OURS, SimpleProfiler), (THEIRS, reference.SimpleProfiler)):
        profiler: Any = cls()
        run(
            library,
            own_steps,
            train=lambda: loader(shuffle=False),
            val=lambda: loader(8, shuffle=False),
            method=method,
            max_epochs=2,
            profiler=profiler,
        )
        found.append(profiler)
    return found[0], found[1]


@pytest.mark.parametrize("method", ["fit", "validate", "test", "predict"])
def test_actions_are_lightnings(method: str) -> None:
    own, other = both_profiled(method)
    calls = {action: len(durations) for action, durations in own.recorded_durations.items()}
    reference_calls = {action: len(durations) for action, durations in other.recorded_durations.items()}
    # The strategies of Lightning have hooks of their own.
    assert calls == {a: n for a, n in reference_calls.items() if not re.match(r"\[Strategy\]\w+\.on_", a)}
    if method == "fit":
        assert calls["my part"] == calls["run_training_batch"] == 12
        assert calls["[LightningModule]Own.on_train_epoch_start"] == 2


def test_actions_of_data_modules_callbacks_and_checkpoints_are_lightnings(tmp_path: Path) -> None:
    """Two loaders, a scheduler, hooks of the batch's way to the device in the data module, accumulation, a resumed
    fit.
    """
    found: dict[str, dict[str, int]] = {}
    libraries = ((OURS, SimpleProfiler, unstuck.callbacks), (THEIRS, reference.SimpleProfiler, reference_callbacks))
    for library, profiler_class, callbacks in libraries:

        class Data(library.LightningDataModule):  # type: ignore[name-defined, misc]
            def train_dataloader(self) -> Any:
                return loader(shuffle=False)

            def val_dataloader(self) -> Any:
                return [loader(8, shuffle=False), loader(4, shuffle=False)]

            def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
                return batch

        class Scheduled(base_module(library)):  # type: ignore[misc]
            def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
                super().validation_step(batch, batch_idx)

            def configure_optimizers(self) -> Any:
                optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
                return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

        def use(trainer: Any, module: Any, folder: Path = tmp_path / library.name, data: Any = Data) -> None:
            trainer.fit(module, datamodule=data())
            trainer.save_checkpoint(folder / "end.ckpt")
            trainer.fit_loop.max_epochs = 3
            trainer.fit(module, datamodule=data(), ckpt_path=folder / "end.ckpt")

        profiler: Any = profiler_class()
        run(
            library,
            lambda _, module=Scheduled: module(),
            use=use,
            max_epochs=2,
            profiler=profiler,
            accumulate_grad_batches=2,
            num_sanity_val_steps=1,
            enable_checkpointing=True,
            callbacks=[
                callbacks.ModelCheckpoint(dirpath=tmp_path / library.name, save_top_k=-1),
                callbacks.EarlyStopping("loss"),
            ],
        )
        calls = {action: len(durations) for action, durations in profiler.recorded_durations.items()}
        found[library.name] = {a: n for a, n in calls.items() if not re.match(r"\[Strategy\]\w+\.on_", a)}
    assert found["ours"] == found["theirs"]
    assert "[LightningDataModule]Data.on_after_batch_transfer" in found["ours"]


def test_actions_of_manual_optimisation() -> None:
    found = []
    for library, profiler_class in ((OURS, SimpleProfiler), (THEIRS, reference.SimpleProfiler)):

        class Manual(base_module(library)):  # type: ignore[misc]
            automatic_optimization = False

            def training_step(self, batch: Any, batch_idx: int) -> None:
                optimizer = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(super().training_step(batch, batch_idx))
                optimizer.step()

        profiler: Any = profiler_class()
        run(library, lambda _, module=Manual: module(), max_epochs=1, profiler=profiler)
        found.append({action: len(durations) for action, durations in profiler.recorded_durations.items()})
    assert found[0]["optimizer_step"] == found[1]["optimizer_step"] == 6
    # Lightning doesn't tell how long the backward pass takes here.
    del found[0]["[Strategy]SingleDeviceStrategy.backward"]
    assert found[0] == {a: n for a, n in found[1].items() if not re.match(r"\[Strategy\]\w+\.on_", a)}


def test_training_is_the_same_with_a_profiler() -> None:
    compare(max_epochs=2, profiler="simple", gradient_clip_val=0.5, accumulate_grad_batches=2)
    profiled_run = run(OURS, max_epochs=1, profiler=SimpleProfiler())
    plain = run(OURS, max_epochs=1)
    assert all(torch.equal(a, b) for a, b in zip(profiled_run.losses, plain.losses, strict=True))


def test_own_times_and_the_rest_are_the_whole() -> None:
    profiler = SimpleProfiler()
    run(OURS, own_steps, val=lambda: loader(8, shuffle=False), max_epochs=2, profiler=profiler)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in profiler.summary().splitlines()]
    table = {row[0]: row for row in rows if len(row) == 7}
    assert table["Action"][1:] == [
        "Mean duration (s)",
        "Num calls",
        "Total time (s)",
        "Percentage %",
        "Own time (s)",
        "Within",
    ]
    total = float(table["Total"][3])
    own = sum(float(row[5]) for name, row in table.items() if name not in ("Action", "Total"))
    assert own == pytest.approx(total, rel=0.01)
    assert table["run_training_batch"][6] == "run_training_epoch"
    assert table["my part"][6] == "[Strategy]SingleDeviceStrategy.training_step"
    assert float(table["my part"][3]) <= float(table["run_training_batch"][3]) <= total
    assert profiler.summary().startswith("FIT Profiler Report")


def test_simple_profiler_by_hand() -> None:
    profiler = SimpleProfiler()
    with profiler.profile("outer"):
        time.sleep(0.02)
        with profiler.profile("inner"):
            time.sleep(0.03)
    assert profiler.recorded_durations["outer"][0] >= 0.05
    assert 0.015 < profiler._nesting["outer"].own < profiler.recorded_durations["outer"][0] - 0.025
    with pytest.raises(ValueError, match="isn't running"):
        profiler.stop("outer")
    profiler.start("outer")
    with pytest.raises(ValueError, match="while it is running"):
        profiler.start("outer")
    short = SimpleProfiler(extended=False)
    with short.profile("only"):
        pass
    assert "Num calls" not in short.summary() and "only" in short.summary()
    assert SimpleProfiler().summary() == "Profiler Report\n"


def test_an_action_ends_with_its_exception() -> None:
    profiler = SimpleProfiler()
    with pytest.raises(ZeroDivisionError), profiler.profile("fails"):
        1 / 0  # noqa: B018
    assert len(profiler.recorded_durations["fails"]) == 1
    assert not profiler.current_actions


@pytest.mark.parametrize("kind", ["simple", "advanced", "pytorch"])
def test_report_is_logged_or_written(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="unstuck"):
        run(OURS, max_epochs=1, profiler=kind, logger=CSVLogger(tmp_path))
    assert sum("FIT Profiler Report" in line for line in caplog.messages) == 1
    cls = {"simple": SimpleProfiler, "advanced": AdvancedProfiler, "pytorch": PyTorchProfiler}[kind]
    caplog.clear()
    with caplog.at_level("INFO", logger="unstuck"):
        run(OURS, max_epochs=1, profiler=cls(tmp_path / "reports", "report"))
    assert not any("Report" in line for line in caplog.messages)
    assert (tmp_path / "reports" / "fit-report.txt").read_text(encoding="utf-8").startswith("FIT Profiler Report")


def test_a_failed_run_is_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(base_module(OURS)):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise RuntimeError("in the step")

    with caplog.at_level("INFO", logger="unstuck"), pytest.raises(RuntimeError, match="in the step"):
        run(OURS, lambda library: Failing(), max_epochs=1, profiler="simple")
    assert any("SingleDeviceStrategy.training_step" in line for line in caplog.messages)


def test_advanced_profiler_lists_functions(tmp_path: Path) -> None:
    profiler = AdvancedProfiler(tmp_path, "functions", line_count_restriction=50, dump_stats=True)
    run(OURS, max_epochs=1, profiler=profiler)
    text = (tmp_path / "fit-functions.txt").read_text(encoding="utf-8")
    step = text.split("Profile stats for: [Strategy]SingleDeviceStrategy.training_step")[1].split("Profile stats")[0]
    assert "mse_loss" in step and "cumulative" in step
    dumped = next(path for path in tmp_path.glob("*.prof") if "training_step" in path.name)
    assert any("mse_loss" in function[2] for function in pstats.Stats(str(dumped)).stats)  # type: ignore[attr-defined]


def test_advanced_profiler_nests() -> None:
    def slow_outside() -> None:
        time.sleep(0.01)

    def slow_inside() -> None:
        time.sleep(0.01)

    profiler = AdvancedProfiler()
    with profiler.profile("outer"):
        with profiler.profile("inner"):
            slow_inside()
        slow_outside()
    outer = profiler.summary().split("Profile stats for: outer")[1].split("Profile stats")[0]
    assert "slow_outside" in outer and "slow_inside" not in outer
    with pytest.raises(ValueError, match="isn't running"):
        profiler.stop("outer")
    profiler.start("again")
    assert pickle.loads(pickle.dumps(profiler)).profiled_actions == {}
    profiler.teardown(None)


@pytest.mark.parametrize("batches", [2, 8])
def test_pytorch_profiler_lists_operators(batches: int, tmp_path: Path) -> None:
    profiler = PyTorchProfiler(tmp_path, "ops", row_limit=-1, table_kwargs={"max_name_column_width": 200})
    run(
        OURS,
        train=lambda: loader(4 * batches),
        val=lambda: loader(32, shuffle=False),
        max_epochs=1,
        num_sanity_val_steps=2,
        profiler=profiler,
    )
    text = (tmp_path / "fit-ops.txt").read_text(encoding="utf-8")
    assert "Profile stats for: records" in text
    assert "aten::addmm" in text and "CPU total" in text
    assert "[pl][module]torch.nn.modules.linear.Linear: net.0" in text
    assert "[pl][profile][Strategy]SingleDeviceStrategy.training_step" in text
    calls = re.search(r"\[pl\]\[profile\]run_training_batch .* (\d+)\s*\n", text)
    assert calls is not None and int(calls.group(1)) == (2 if batches == 2 else 3)
    assert profiler.profiler is None


@pytest.mark.parametrize("batches", [2, 6])
def test_traces_and_what_is_left_after_a_run_are_lightnings(batches: int, tmp_path: Path) -> None:
    names = []
    for library, profiler_class in ((OURS, PyTorchProfiler), (THEIRS, reference.PyTorchProfiler)):
        profiler: Any = profiler_class(tmp_path / library.name, row_limit=-1)
        run(
            library,
            train=lambda: loader(4 * batches),
            val=lambda: loader(24, shuffle=False),
            max_epochs=1,
            profiler=profiler,
        )
        assert "aten::addmm" in profiler.summary() and "Profile stats for: records" in profiler.summary()
        assert any(event.name == "aten::addmm" for event in profiler.function_events)
        # Without the time that torch puts into each name.
        names.append(sorted(path.name.split(".")[:-4] for path in (tmp_path / library.name).glob("*.json")))
    assert names[0] == names[1]


def test_pytorch_profiler_by_hand_and_what_it_refuses() -> None:
    profiler = PyTorchProfiler(
        export_to_chrome=False, sort_by_key="count", group_by_input_shapes=True, record_shapes=True
    )
    with profiler.profile("mine"):
        torch.ones(3, 3) @ torch.ones(3, 3)
    assert profiler.function_events is None
    assert "aten::mm" in profiler.summary() and "[[3, 3], [3, 3]]" in profiler.summary()
    profiler.teardown(None)
    assert "aten::mm" in profiler.summary()
    assert any(event.name == "aten::mm" for event in profiler.function_events)
    profiler.setup("fit")
    assert profiler.summary() == ""
    with pytest.raises(MisconfigurationException, match="sort_by_key"):
        PyTorchProfiler(sort_by_key="speed")
    with pytest.raises(MisconfigurationException, match="schedule"):
        PyTorchProfiler(schedule=lambda step: step)
    with pytest.raises(KeyError, match="row_limit"):
        PyTorchProfiler(table_kwargs={"row_limit": 3})
    assert PyTorchProfiler.AVAILABLE_SORT_KEYS == reference.PyTorchProfiler.AVAILABLE_SORT_KEYS


def test_pytorch_profiler_leaves_no_hooks() -> None:
    def use(trainer: Any, module: Any) -> Any:
        trainer.fit(module, loader())
        return [len(child._forward_hooks) + len(child._forward_pre_hooks) for child in module.modules()]

    outcome = run(OURS, use=use, max_epochs=1, profiler=PyTorchProfiler(export_to_chrome=False))
    assert not any(outcome.result)


def test_the_schedule_may_be_ones_own() -> None:
    ready = []
    profiler = PyTorchProfiler(
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1),
        on_trace_ready=lambda profile: ready.append(len(profile.events())),
    )
    run(OURS, max_epochs=1, profiler=profiler)
    assert len(ready) == 1 and ready[0] > 0


def test_which_profilers_a_trainer_takes() -> None:
    assert isinstance(unstuck.Trainer(**QUIET, max_epochs=1).profiler, PassThroughProfiler)
    trainer = unstuck.Trainer(**QUIET, max_epochs=1, profiler="Simple")
    assert isinstance(trainer.profiler, SimpleProfiler)
    with trainer.profiler.profile("mine"):
        pass
    for wrong in ("stopwatch", SimpleProfiler, 3):
        with pytest.raises(MisconfigurationException, match="profiler"):
            unstuck.Trainer(**QUIET, max_epochs=1, profiler=wrong)
    theirs = reference.SimpleProfiler()
    run(OURS, max_epochs=1, profiler=theirs)
    assert len(theirs.recorded_durations["run_training_batch"]) == 6


def test_off_means_nothing_is_wrapped() -> None:
    def function() -> None: ...

    batches = [(1, False), (2, True)]
    assert profiled(None, "name", function) is function
    assert profiled_batches(None, "name", batches) is batches

    class Watching(unstuck.Callback):
        def on_train_batch_end(self, *args: Any) -> None: ...

    def use(trainer: Any, module: Any) -> Any:
        trainer.fit(module, loader())
        hook: Any = bind_hook(trainer, "on_train_batch_end")
        return [cell.cell_contents for cell in hook.__closure__ if isinstance(cell.cell_contents, list)]

    watching = Watching()
    (callbacks,) = run(OURS, use=use, max_epochs=1, callbacks=[watching]).result
    assert callbacks == [watching.on_train_batch_end]


def test_the_last_batch_is_drawn_once() -> None:
    profiler = SimpleProfiler()
    batches = [(1, False), (None, False), (3, True)]
    assert list(profiled_batches(profiler, "draw", batches)) == batches
    assert len(profiler.recorded_durations["draw"]) == 3
    assert list(profiled_batches(profiler, "empty", [])) == []


def test_reports_are_told_apart_by_stage_rank_and_action() -> None:
    for library in (SimpleProfiler, reference.SimpleProfiler):
        profiler: Any = library("x", "report")
        profiler.setup("fit", local_rank=3)
        name = profiler._prepare_filename("[Callback]A{'b': 1}.on_fit", ".prof")
        assert name == "fit-report-3-[Callback]A{'b'_ 1}.on_fit.prof"
    assert "rank: 3" in profiler._stats_to_str({"action": "text"})


def test_a_span_on_the_devices_time_line_gets_no_time_of_kernels_twice() -> None:
    from torch._C._autograd import DeviceType
    from torch.autograd.profiler_util import EventList, FunctionEventAvg

    from unstuck.profilers.pytorch import _without_spans_on_device

    def average(name: str, device: DeviceType, is_span: bool) -> FunctionEventAvg:
        made = FunctionEventAvg()
        made.key, made.device_type, made.is_user_annotation, made.count = name, device, is_span, 1
        made.use_device = "cuda"
        made.self_device_time_total = made.device_time_total = 100.0 if device == DeviceType.CUDA else 0.0
        return made

    averages = EventList(
        [
            average("[pl][profile]training_step", DeviceType.CPU, True),
            average("[pl][profile]training_step", DeviceType.CUDA, True),
            average("gemm", DeviceType.CUDA, False),
        ],
        use_device="cuda",
    )
    kept = _without_spans_on_device(averages, averages)
    assert [(item.key, item.device_type == DeviceType.CUDA) for item in kept] == [
        ("[pl][profile]training_step", False),
        ("gemm", True),
    ]
    assert sum(item.self_device_time_total for item in kept) == 100.0
    assert "100.00%" in kept.table(sort_by="cuda_time_total")


def test_parts_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    with SimpleProfiler().profile("part"):
        pass
    with SimpleProfiler(synchronize=False).profile("part"):
        pass
    assert len(waits) == 2
