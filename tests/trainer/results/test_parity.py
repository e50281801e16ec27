"""What is logged must be visible with the same keys, values and order, at the same moments, as under Lightning.

A script says which hook logs what. It runs in Lightning's Trainer, in a loop that does nothing but tell the logbook,
and in our Trainer.
"""

import itertools
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torchmetrics
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import unstuck
from unstuck.errors import MisconfigurationException
from unstuck.trainer.results import Logbook, LogOptions, to_scalars

lightning = pytest.importorskip("lightning.pytorch")

TRAIN_HOOKS = ("on_train_batch_start", "training_step", "on_train_batch_end")
EVALUATION_HOOKS = ("on_validation_batch_start", "validation_step", "on_validation_batch_end")
EPOCH_HOOKS = (
    "on_train_start",
    "on_train_epoch_start",
    "on_train_epoch_end",
    "on_validation_start",
    "on_validation_epoch_start",
    "on_validation_epoch_end",
)
SILENT_HOOKS = ("on_validation_end", "on_train_end")
HOOKS = (*TRAIN_HOOKS, *EVALUATION_HOOKS, *EPOCH_HOOKS, *SILENT_HOOKS)


class Call(NamedTuple):
    """One call of ``log``, or of ``log_dict`` with more than one name, on every ``every``-th run of a hook."""

    hook: str
    names: tuple[str, ...]
    kind: str
    options: LogOptions
    batch_size: int | None
    every: int


class Script(NamedTuple):
    calls: tuple[Call, ...]
    observed: frozenset[str]
    epochs: int
    train_sizes: tuple[int, ...]
    val_sizes: tuple[tuple[int, ...], ...]
    log_every_n_steps: int
    sanity_steps: int


def make_value(kind: str, number: float) -> Any:
    if kind == "float":
        return number
    if kind == "int":
        return int(number * 100)
    dtypes = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "int64": torch.int64}
    if kind == "column":
        return torch.tensor([number])
    if kind == "graph":
        return torch.tensor(number, requires_grad=True) * 1.25
    return torch.tensor(number if kind != "int64" else int(number * 100), dtype=dtypes[kind])


class Actor:
    """Plays a script: logs what is due in a hook, and takes down what is visible there."""

    def __init__(
        self, script: Script, log: Callable[..., None], log_dict: Callable[..., None], read: Callable[[], Any]
    ):
        self.script, self.log, self.log_dict, self.read = script, log, log_dict, read
        self.runs = dict.fromkeys(HOOKS, 0)
        self.numbers = torch.Generator().manual_seed(7)
        self.seen: list[Any] = []

    def run(self, hook: str) -> None:
        for call in self.script.calls:
            if call.hook != hook or self.runs[hook] % call.every:
                continue
            values = {name: make_value(call.kind, torch.rand((), generator=self.numbers).item()) for name in call.names}
            keywords = {**call.options._asdict(), "batch_size": call.batch_size}
            if len(values) == 1:
                self.log(*next(iter(values.items())), **keywords)
            else:
                keywords.pop("metric_attribute")
                self.log_dict(values, **keywords)
        self.runs[hook] += 1
        if hook in self.script.observed:
            self.observe(hook)

    def observe(self, moment: str) -> None:
        self.seen.append((moment, [copy_metrics(metrics) for metrics in self.read()]))


def copy_metrics(metrics: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        (name, (value.item(), value.dtype) if isinstance(value, torch.Tensor) else value)
        for name, value in metrics.items()
    ]


class Rows(lightning.loggers.logger.DummyLogger):
    """Takes down what a logger gets."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Any] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((list(metrics.items()), step))


def loader(sizes: tuple[int, ...]) -> DataLoader[Any]:
    return DataLoader([torch.zeros(size, 1) for size in sizes], batch_size=None)  # type: ignore[arg-type]


def play_in_trainer(library: Any, script: Script) -> tuple[list[Any], list[Any], str | None]:
    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    def hook_method(name: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            actor.run(name)
            return self.weight * 0 if name == "training_step" else None

        # With several loaders the hooks of a batch must take the loader's index.
        if name in EVALUATION_HOOKS and len(script.val_sizes) > 1:
            if name == "on_validation_batch_end":
                return lambda self, outputs, batch, batch_idx, dataloader_idx=0: method(self)
            return lambda self, batch, batch_idx, dataloader_idx=0: method(self)
        if name == "on_train_batch_end" or name == "on_validation_batch_end":
            return lambda self, outputs, batch, batch_idx: method(self)
        if name in TRAIN_HOOKS or name in EVALUATION_HOOKS:
            return lambda self, batch, batch_idx: method(self)
        return lambda self: method(self)

    for name in HOOKS:
        if name not in EVALUATION_HOOKS or script.val_sizes:
            setattr(Module, name, hook_method(name))
    module, rows = Module(), Rows()
    trainer = library.Trainer(
        accelerator="cpu",
        logger=[rows],
        max_epochs=script.epochs,
        log_every_n_steps=script.log_every_n_steps,
        num_sanity_val_steps=script.sanity_steps,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    actor = Actor(
        script,
        module.log,
        module.log_dict,
        lambda: (trainer.callback_metrics, trainer.logged_metrics, trainer.progress_bar_metrics),
    )
    error = None
    try:
        trainer.fit(
            module,
            loader(script.train_sizes),
            [loader(sizes) for sizes in script.val_sizes] or None,
        )
        actor.observe("end")
    except Exception as failure:  # noqa: BLE001 - its class is what is compared
        error = type(failure).__name__
    return actor.seen, rows.rows, error


def play_here(script: Script) -> tuple[list[Any], list[Any], str | None]:
    rows = Rows()
    logbook = Logbook([rows], script.log_every_n_steps)

    def log(name: str, value: Any, batch_size: int | None, **options: Any) -> None:
        assert logbook.store is not None
        logbook.store.log(name, value, tuple(LogOptions(**options)), batch_size)

    def log_dict(values: dict[str, Any], batch_size: int | None, **options: Any) -> None:
        assert logbook.store is not None
        logbook.store.log_dict(values, tuple(LogOptions(**options)), batch_size)

    actor = Actor(
        script, log, log_dict, lambda: (logbook.callback_metrics, logbook.logged_metrics, logbook.progress_bar_metrics)
    )

    def hook(name: str) -> None:
        assert logbook.store is not None
        logbook.store.hook = name
        actor.run(name)
        logbook.store.hook = None

    seen_batches = [0] * len(script.val_sizes)

    def evaluate(loop: Any, limit: int | None, step: int, epoch: int) -> None:
        logbook.enter(loop)
        hook("on_validation_start")
        hook("on_validation_epoch_start")
        for idx, sizes in enumerate(script.val_sizes):
            for size in sizes[:limit]:
                logbook.begin_batch(torch.zeros(size, 1), idx if len(script.val_sizes) > 1 else None)
                for name in EVALUATION_HOOKS:
                    hook(name)
                logbook.end_batch()
                if loop != "sanity_check":
                    logbook.write_evaluation_step(seen_batches[idx])
                    seen_batches[idx] += 1
            logbook.close_dataloader()
        logbook.reach_epoch_end()
        hook("on_validation_epoch_end")
        logbook.finish_evaluation(step, epoch)
        hook("on_validation_end")
        logbook.leave()

    def fit() -> None:
        logbook.start(None, torch.device("cpu"))
        if script.sanity_steps and script.val_sizes:
            logbook.forget()
            evaluate("sanity_check", script.sanity_steps, 0, 0)
            logbook.forget()
        logbook.enter("train")
        hook("on_train_start")
        step = 0
        for epoch in range(script.epochs):
            hook("on_train_epoch_start")
            for size, last in zip(script.train_sizes, last_flags(len(script.train_sizes)), strict=True):
                logbook.begin_batch(torch.zeros(size, 1))
                for name in TRAIN_HOOKS:
                    hook(name)
                logbook.end_batch()
                logbook.write_train_step(step, epoch)
                if last and script.val_sizes:
                    evaluate("validate", None, step, epoch)
                step += 1
            logbook.reach_epoch_end()
            hook("on_train_epoch_end")
            logbook.publish_epoch()
            logbook.write_train_epoch(step - 1, epoch)
        hook("on_train_end")
        logbook.leave()
        logbook.move_to_cpu()
        actor.observe("end")

    error = None
    try:
        fit()
    except Exception as failure:  # noqa: BLE001 - its class is what is compared
        error = type(failure).__name__
    return actor.seen, rows.rows, error


def last_flags(count: int) -> list[bool]:
    return [False] * (count - 1) + [True]


def levels(hook: str) -> st.SearchStrategy[tuple[bool | None, bool | None]]:
    if hook in EPOCH_HOOKS:
        return st.sampled_from([(None, None), (False, True), (None, True)])
    return st.sampled_from([(None, None), (True, True), (True, False), (False, True), (None, True), (True, None)])


@st.composite
def calls(draw: st.DrawFn) -> Call:
    hook = draw(st.sampled_from([*TRAIN_HOOKS, *EVALUATION_HOOKS, *EPOCH_HOOKS]))
    on_step, on_epoch = draw(levels(hook))
    return Call(
        hook=hook,
        names=draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True).map(tuple)),
        kind=draw(
            st.sampled_from(["float32"] * 4 + ["float", "int", "float64", "float16", "int64", "column", "graph"])
        ),
        options=LogOptions(
            prog_bar=draw(st.booleans()),
            logger=draw(st.sampled_from([None, True, False])),
            on_step=on_step,
            on_epoch=on_epoch,
            reduce_fx=draw(st.sampled_from(["mean"] * 3 + ["sum", "max", "min", torch.max])),
            add_dataloader_idx=draw(st.sampled_from([True, True, False])),
        ),
        batch_size=draw(st.sampled_from([None, None, 1, 7])),
        every=draw(st.sampled_from([1, 1, 2])),
    )


scripts = st.builds(
    Script,
    calls=st.lists(calls(), min_size=1, max_size=6).map(tuple),
    observed=st.frozensets(st.sampled_from(HOOKS)),
    epochs=st.integers(1, 2),
    train_sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    val_sizes=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple), max_size=2).map(tuple),
    log_every_n_steps=st.integers(0, 3),
    sanity_steps=st.integers(0, 1),
)


@pytest.fixture(autouse=True, scope="module")
def _quiet_reference() -> Iterator[None]:
    logs = [logging.getLogger(name) for name in ("lightning.pytorch", "unstuck")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    yield
    for log, level in zip(logs, before, strict=True):
        log.setLevel(level)


def compare(script: Script) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected_seen, expected_rows, expected_error = play_in_trainer(lightning, script)
        for seen, rows, error in (play_here(script), play_in_trainer(unstuck, script)):
            assert error == expected_error
            assert seen == expected_seen
            assert rows == expected_rows
    return expected_error


@given(scripts)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
def test_same_content_at_the_same_moments(script: Script) -> None:
    compare(script)


EVERYWHERE = Script(
    calls=tuple(
        Call(hook, (f"{hook}_{kind}",), kind, LogOptions(prog_bar=True), None, every)
        for hook, kind, every in itertools.product(HOOKS[:-2], ("float32", "float"), (1, 2))
        if every == 1 or kind == "float32"
    )[::2],
    observed=frozenset(HOOKS),
    epochs=2,
    train_sizes=(3, 5, 2),
    val_sizes=((4, 1), (2, 6)),
    log_every_n_steps=2,
    sanity_steps=1,
)


def test_every_hook_logs_and_sees_the_same() -> None:
    assert compare(EVERYWHERE) is None


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook.startswith("on_")])
@pytest.mark.parametrize(("on_step", "on_epoch"), [(True, None), (None, False), (False, False), (None, None)])
def test_forbidden_levels_are_the_same_kind_of_error(hook: str, on_step: bool | None, on_epoch: bool | None) -> None:
    call = Call(hook, ("a",), "float32", LogOptions(on_step=on_step, on_epoch=on_epoch), None, 1)
    compare(EVERYWHERE._replace(calls=(call,), observed=frozenset(), sanity_steps=0, epochs=1))


def test_the_errors_are_configuration_errors() -> None:
    call = Call("on_train_end", ("a",), "float32", LogOptions(), None, 1)
    script = EVERYWHERE._replace(calls=(call,), epochs=1)
    assert compare(script) == MisconfigurationException.__name__


def test_scalars_are_numbers_of_the_same_value() -> None:
    values = {"a": torch.tensor(0.1), "b": torch.tensor([0.2], dtype=torch.float64), "c": 3, "d": torch.tensor(4)}
    assert to_scalars(values) == {"a": torch.tensor(0.1).item(), "b": 0.2, "c": 3, "d": 4}
    assert list(to_scalars(values)) == list(values)


def train_with_metric_objects(library: Any) -> tuple[list[Any], list[Any]]:
    seen, rows = [], Rows()

    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 4)
            self.accuracy = torchmetrics.classification.MulticlassAccuracy(4)
            collection = torchmetrics.MetricCollection(
                {
                    "accuracy": torchmetrics.classification.MulticlassAccuracy(4),
                    "f1": torchmetrics.classification.MulticlassF1Score(4),
                }
            )
            self.train_metrics = collection.clone(prefix="train_")
            self.val_metrics = torch.nn.ModuleList([collection.clone(prefix="val_") for _ in range(2)])

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            x, y = batch
            logits = self.layer(x)
            loss = torch.nn.functional.cross_entropy(logits, y)
            self.accuracy(logits, y)
            self.log("accuracy", self.accuracy, on_step=True, on_epoch=True, prog_bar=True)
            self.train_metrics.update(logits, y)
            self.log_dict(self.train_metrics, on_step=False, on_epoch=True)
            self.log_dict({"loss": loss, "forwarded": self.accuracy}, on_step=True, on_epoch=True)
            return loss

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            x, y = batch
            self.val_metrics[dataloader_idx](self.layer(x), y)
            self.log_dict(self.val_metrics[dataloader_idx])

        def on_train_epoch_end(self) -> None:
            seen.append([copy_metrics(trainer.callback_metrics), copy_metrics(trainer.progress_bar_metrics)])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.5)

    def loader(samples: int) -> DataLoader[Any]:
        return DataLoader(torch.utils.data.TensorDataset(torch.randn(samples, 3), torch.arange(samples) % 4), 4)

    torch.manual_seed(0)
    module = Module()
    trainer = library.Trainer(
        accelerator="cpu",
        logger=[rows],
        max_epochs=3,
        log_every_n_steps=2,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader(18), [loader(9), loader(5)])
    return [*seen, copy_metrics(trainer.callback_metrics), copy_metrics(trainer.logged_metrics)], rows.rows


def test_metric_objects_give_the_same_numbers() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, ours = train_with_metric_objects(lightning), train_with_metric_objects(unstuck)
    assert ours == expected
    assert {"accuracy_epoch", "train_f1", "forwarded_step", "val_f1/dataloader_idx_1"} <= dict(ours[0][-2]).keys()
