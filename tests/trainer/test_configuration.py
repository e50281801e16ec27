"""Bad configurations are refused like in Lightning: the same kind of error, naming the argument, in words of our
own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import lightning.pytorch as pl
import pytest
import torch

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, THEIRS, Library, base_module, loader
from unstuck.errors import MisconfigurationException

PARITY: list[dict[str, Any]] = [
    {"gradient_clip_algorithm": "sum"},
    {"gradient_clip_val": "one"},
    {"accelerator": "abacus"},
    {"devices": 0},
    {"devices": "many"},
    {"devices": "0"},
    {"devices": []},
    {"devices": -1},
    {"devices": "0,"},
    {"devices": [0]},
    {"devices": None},
    {"devices": 1.5},
    {"num_nodes": 0},
    {"num_nodes": "1"},
    {"strategy": "telepathy"},
    {"strategy": None},
    {"strategy": 1},
    {"precision": "17-true"},
    {"limit_train_batches": -1},
    {"limit_val_batches": 1.5},
    {"limit_test_batches": -0.5},
    {"limit_predict_batches": 2.5},
    {"overfit_batches": -0.1},
    {"overfit_batches": 1.5},
    {"val_check_interval": 1.5},
    {"val_check_interval": "soon"},
    {"check_val_every_n_epoch": 0.5},
    {"max_time": "soon"},
    {"max_steps": -2},
    {"max_epochs": -2},
    {"fast_dev_run": -1},
    {"reload_dataloaders_every_n_epochs": -1},
    {"profiler": "stopwatch"},
    {"plugins": [3]},
    {"unknown": 1},
]


def error_of(library: Library, keywords: dict[str, Any]) -> Exception:
    try:
        library.Trainer(**{**QUIET, **keywords})
    except Exception as error:  # noqa: BLE001 - the kind is what is asked for
        return error
    pytest.fail(f"{library.name} accepts {keywords}")


@pytest.mark.parametrize("keywords", PARITY, ids=str)
def test_the_same_kind_of_error_that_names_the_argument(keywords: dict[str, Any]) -> None:
    own, other = error_of(OURS, keywords), error_of(THEIRS, keywords)
    assert type(own).__name__ == type(other).__name__
    assert next(iter(keywords)) in str(own)


@pytest.mark.parametrize(
    "keywords",
    [
        {"accumulate_grad_batches": 0},
        {"accumulate_grad_batches": 1.5},
        {"log_every_n_steps": -1},
        {"num_sanity_val_steps": -5},
        {"min_epochs": -2},
        {"min_steps": 0.5},
        {"max_epochs": 1.5},
        {"max_time": {"fortnights": 1}},
        {"deterministic": "maybe"},
        {"gradient_clip_val": -1.0},
        {"gradient_clip_val": float("nan")},
        {"max_steps": None},
        {"devices": 2},
    ],
    ids=str,
)
def test_what_lightning_lets_pass_is_refused_too(keywords: dict[str, Any]) -> None:
    with pytest.raises(MisconfigurationException, match=next(iter(keywords))):
        OURS.Trainer(**{**QUIET, **keywords})


@pytest.mark.parametrize(
    "keywords",
    [
        {"strategy": "ddp"},
        {"strategy": "fsdp"},
        {"num_nodes": 2},
        {"sync_batchnorm": True},
        {"model_registry": "somewhere"},
    ],
    ids=str,
)
def test_what_is_not_built_is_refused(keywords: dict[str, Any]) -> None:
    with pytest.raises(MisconfigurationException, match=next(iter(keywords))):
        OURS.Trainer(**{**QUIET, **keywords})


def test_barebones_lists_all_conflicts_in_one_error() -> None:
    with pytest.raises(ValueError, match="barebones") as caught:
        unstuck.Trainer(barebones=True, detect_anomaly=True, fast_dev_run=2, logger=True, profiler="simple")
    for name in ("detect_anomaly", "fast_dev_run", "logger", "profiler"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("00:01:00:30", timedelta(hours=1, seconds=30)),
        ({"minutes": 2}, timedelta(minutes=2)),
        (timedelta(days=1), timedelta(days=1)),
        (None, None),
    ],
)
def test_forms_of_max_time(given: Any, expected: Any) -> None:
    from unstuck.trainer.config import parse_max_time

    assert parse_max_time(given) == expected


@pytest.mark.parametrize("callbacks", ["early", 1, [1], [unstuck.Callback], unstuck.Callback])
def test_what_is_no_callback_is_refused(callbacks: Any) -> None:
    with pytest.raises(TypeError, match="callbacks"):
        OURS.Trainer(**QUIET, max_epochs=1, callbacks=callbacks)


def test_what_is_no_callback_is_refused_from_the_module_too() -> None:
    class Module(base_module(OURS)):  # type: ignore[misc]
        def configure_callbacks(self) -> Any:
            return [unstuck.Callback]

    with pytest.raises(TypeError, match=r"Module\.configure_callbacks.*Callback"):
        OURS.Trainer(**QUIET, max_epochs=1).fit(Module(), loader())


@pytest.mark.parametrize("logger", ["tensorboard", 1, [unstuck.Callback()]])
def test_what_is_no_logger_is_refused(logger: Any) -> None:
    with pytest.raises(TypeError, match="logger"):
        OURS.Trainer(**{**QUIET, "logger": logger}, max_epochs=1)


def test_without_an_end_the_default_is_told_by_a_fit_alone() -> None:
    class Short(base_module(OURS)):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.trainer.should_stop = True
            return super().training_step(batch, batch_idx)

    trainer = OURS.Trainer(**QUIET)
    trainer.validate(Short(), loader(shuffle=False), verbose=False)
    with pytest.warns(UserWarning, match="max_epochs"):
        trainer.fit(Short(), loader(), loader(shuffle=False))
    assert trainer.max_epochs == 1000
    assert OURS.Trainer(**QUIET, max_steps=3).max_epochs == -1
    assert OURS.Trainer(**QUIET, max_time="00:00:01:00").max_epochs == -1


def fit_error(library: Library, make: Any, **keywords: Any) -> Exception:
    trainer = library.Trainer(**{**QUIET, "max_epochs": 1, **keywords})
    try:
        trainer.fit(make(library), loader())
    except Exception as error:  # noqa: BLE001 - the kind is what is asked for
        return error
    pytest.fail(f"{library.name} trains")


def manual(library: Library) -> Any:
    module = base_module(library)()
    module.automatic_optimization = False
    return module


def configured(answer: Any) -> Any:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def configure_optimizers(self) -> Any:
                return answer(self)

        return Module()

    return make


def stepping(step: Any) -> Any:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def training_step(self, batch: Any, batch_idx: int) -> Any:
                return step(self)

        return Module()

    return make


def without(name: str) -> Any:
    def make(library: Library) -> Any:
        base = base_module(library)
        return type("Module", (base,), {name: getattr(library.LightningModule, name)})()

    return make


def sgd(module: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1)


def plateau(module: Any) -> Any:
    optimizer = sgd(module)
    return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)}


def with_scheduler(**keys: Any) -> Any:
    def answer(module: Any) -> Any:
        optimizer = sgd(module)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), **keys}]

    return answer


class NoScheduler:
    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def foreign(module: Any) -> Any:
    optimizer = sgd(module)
    return [optimizer], [NoScheduler(optimizer)]


MODULES: dict[str, tuple[Any, dict[str, Any]]] = {
    "manual and clipping": (manual, {"gradient_clip_val": 1.0}),
    "manual and accumulation": (manual, {"accumulate_grad_batches": 2}),
    "no training_step": (without("training_step"), {}),
    "no configure_optimizers": (without("configure_optimizers"), {}),
    "two optimisers, automatic": (configured(lambda module: [sgd(module), sgd(module)]), {}),
    "unknown form": (configured(lambda module: "adam"), {}),
    "plateau without monitor": (configured(plateau), {}),
    "unknown interval": (configured(with_scheduler(interval="batch")), {}),
    "foreign scheduler": (configured(foreign), {}),
    "monitor that nobody logs": (configured(with_scheduler(reduce_on_plateau=True, monitor="nobody")), {}),
    "dict without loss": (stepping(lambda module: {"other": 1}), {}),
    "step that returns a number": (stepping(lambda module: 3), {}),
    "manual_backward when automatic": (stepping(lambda module: module.manual_backward(torch.zeros(()))), {}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", MODULES.values(), ids=MODULES.keys())
def test_modules_that_can_t_be_trained(case: tuple[Any, dict[str, Any]]) -> None:
    make, keywords = case
    own, other = fit_error(OURS, make, **keywords), fit_error(THEIRS, make, **keywords)
    assert type(own).__name__ == type(other).__name__
    assert str(own)


@pytest.mark.filterwarnings("ignore")
def test_evaluation_without_its_step() -> None:
    for method, step in (("validate", "validation_step"), ("test", "test_step")):
        with pytest.raises(MisconfigurationException, match=step):
            getattr(OURS.Trainer(**QUIET, max_epochs=1), method)(without(step)(OURS), loader())


def test_loaders_and_datamodule_exclude_each_other() -> None:
    trainer = OURS.Trainer(**QUIET, max_epochs=1)
    with pytest.raises(MisconfigurationException, match="datamodule"):
        trainer.fit(base_module(OURS)(), loader(), datamodule=unstuck.LightningDataModule())


def test_no_module_and_no_data() -> None:
    trainer = OURS.Trainer(**QUIET, max_epochs=1)
    with pytest.raises(TypeError, match="LightningModule"):
        trainer.fit(torch.nn.Linear(1, 1), loader())
    with pytest.raises(TypeError, match="module"):
        trainer.validate()
    with pytest.raises(MisconfigurationException, match="train_dataloader"):
        trainer.fit(base_module(OURS)())


@pytest.mark.filterwarnings("ignore")
def test_a_step_that_needs_the_loader_s_index() -> None:
    module = base_module(OURS)()
    with pytest.raises(RuntimeError, match="dataloader_idx"):
        OURS.Trainer(**QUIET, max_epochs=1).validate(module, [loader(8), loader(8)])

    class Insists(base_module(OURS)):  # type: ignore[misc]
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int) -> Any: ...

    with pytest.raises(RuntimeError, match="dataloader_idx"):
        OURS.Trainer(**QUIET, max_epochs=1).validate(Insists(), loader(8))


@pytest.mark.filterwarnings("ignore")
def test_hooks_of_lightning_1_are_refused() -> None:
    class Old(base_module(OURS)):  # type: ignore[misc]
        def training_epoch_end(self, outputs: Any) -> None: ...

    with pytest.raises(NotImplementedError, match="on_train_epoch_end"):
        OURS.Trainer(**QUIET, max_epochs=1).fit(Old(), loader())


def test_keywords_are_those_of_lightning() -> None:
    import inspect

    own = inspect.signature(unstuck.Trainer).parameters
    other = inspect.signature(pl.Trainer).parameters
    assert list(own)[: len(other)] == list(other)
    assert {name for name in other if own[name].default != other[name].default} == set()
    for method in ("fit", "validate", "test", "predict"):
        ours = inspect.signature(getattr(unstuck.Trainer, method)).parameters
        theirs = inspect.signature(getattr(pl.Trainer, method)).parameters
        assert list(ours) == list(theirs)


@pytest.mark.filterwarnings("ignore")
def test_steps_that_draw_their_own_batches_are_refused() -> None:
    class Drawing(base_module(OURS)):  # type: ignore[misc]
        def training_step(self, dataloader_iter: Any) -> Any: ...

    with pytest.raises(MisconfigurationException, match="dataloader_iter"):
        OURS.Trainer(**QUIET, max_epochs=1).fit(Drawing(), loader())


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_module_is_trained() -> None:
    torch.manual_seed(0)
    plain = base_module(OURS)()
    torch.manual_seed(0)
    module = base_module(OURS)()
    compiled = torch.compile(module, backend="eager")
    for model in (plain, compiled):
        torch.manual_seed(1)
        OURS.Trainer(**QUIET, max_steps=2).fit(model, loader())
    assert all(map(torch.equal, plain.parameters(), module.parameters()))


@pytest.mark.filterwarnings("ignore:There is .*validation_step")
@pytest.mark.parametrize("answer", [[], {}, {"optimizer": None}, {"optimizer": "adam"}], ids=str)
def test_an_answer_without_an_optimiser_tells_the_forms(answer: Any) -> None:
    error = fit_error(OURS, configured(lambda module: answer))
    assert isinstance(error, MisconfigurationException)
    assert "configure_optimizers" in str(error)
    assert "two lists" in str(error)
