"""Averages of weights."""

import copy
from typing import Any

import lightning.pytorch.callbacks as reference
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from tests.trainer.side_by_side import OURS, THEIRS, Library, assert_same, base_module, compare, loader, run
from unstuck import callbacks as own
from unstuck.errors import MisconfigurationException

pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


def with_batch_norm(library: Library) -> Any:
    module = base_module(library)()
    module.net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))
    return module


def with_scheduler(library: Library) -> Any:
    class Scheduled(base_module(library)):  # type: ignore[misc]
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)]

    return Scheduled()


def plain(library: Library) -> Any:
    return base_module(library)()


AVERAGES: list[tuple[str, dict[str, Any]]] = [
    ("WeightAveraging", {}),
    ("WeightAveraging", {"device": "cpu", "use_buffers": False}),
    ("WeightAveraging", {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}),
    ("EMAWeightAveraging", {"decay": 0.9}),
    ("EMAWeightAveraging", {"decay": 0.5, "update_every_n_steps": 3, "update_starting_at_step": 4}),
    ("EMAWeightAveraging", {"update_every_n_steps": 0, "update_starting_at_epoch": 1}),
]


@pytest.mark.parametrize(
    ("name", "options"), AVERAGES, ids=lambda value: value if isinstance(value, str) else ",".join(value)
)
@pytest.mark.parametrize("accumulate", [1, 4])
def test_average_is_lightnings(name: str, options: dict[str, Any], accumulate: int) -> None:
    outcomes = [
        run(
            library,
            with_batch_norm,
            val=lambda: loader(8, shuffle=False),
            max_epochs=3,
            num_sanity_val_steps=1,
            accumulate_grad_batches=accumulate,
            callbacks=[getattr(module, name)(**options)],
        )
        for library, module in ((OURS, own), (THEIRS, reference))
    ]
    assert_same(*outcomes)


def test_average_of_sgd_by_hand() -> None:
    class Recording(OURS.Callback):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            self.seen: list[torch.Tensor] = []

        def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
            self.seen.append(module.net[0].weight.detach().clone())

    recording = Recording()
    outcome = run(OURS, max_epochs=2, callbacks=[own.WeightAveraging(), recording])
    mean = torch.stack(recording.seen).mean(0)
    assert torch.allclose(outcome.weights["net.0.weight"], mean, atol=1e-6)


def test_checkpoint_has_the_average_and_goes_on() -> None:
    callback, other = own.WeightAveraging(), reference.WeightAveraging()

    def use(trainer: Any, module: Any) -> Any:
        trainer.fit(module, loader())
        return module

    ours = run(OURS, use=use, max_epochs=1, callbacks=[callback]).result
    theirs = run(THEIRS, use=use, max_epochs=1, callbacks=[other]).result
    current = {name: value + 1 for name, value in ours.state_dict().items()}
    checkpoints = []
    for each, module in ((callback, ours), (other, theirs)):
        checkpoint: dict[str, Any] = {"state_dict": dict(current)}
        each.on_save_checkpoint(None, module, checkpoint)  # type: ignore[arg-type, union-attr]
        checkpoints.append(checkpoint)
    assert checkpoints[0].keys() == checkpoints[1].keys()
    for key, values in checkpoints[0].items():
        for name, value in values.items():
            assert torch.equal(value, checkpoints[1][key][name]), (key, name)
    assert callback.state_dict() == other.state_dict() == {"latest_update_step": 6}

    fresh = base_module(OURS)()
    following = own.WeightAveraging()
    following.setup(None, fresh, "fit")  # type: ignore[arg-type]
    following.load_state_dict(callback.state_dict())
    following.on_load_checkpoint(None, fresh, copy.deepcopy(checkpoints[1]))  # type: ignore[arg-type]
    assert torch.equal(fresh.net[0].weight, current["net.0.weight"])
    assert torch.equal(following._average.module.net[0].weight, ours.net[0].weight)  # type: ignore[union-attr, index]
    assert int(following._average.n_averaged) == 6
    with pytest.warns(UserWarning, match="no average"):
        following.on_load_checkpoint(None, fresh, {"state_dict": current})  # type: ignore[arg-type]
    assert torch.equal(following._average.module.net[0].weight, current["net.0.weight"])  # type: ignore[union-attr, index]


def test_layers_of_configure_model_are_averaged() -> None:
    class Late(base_module(OURS)):  # type: ignore[misc]
        def configure_model(self) -> None:
            if not hasattr(self, "extra"):
                self.extra = nn.Linear(8, 1)

    callback = own.WeightAveraging()
    run(OURS, lambda library: Late(), max_epochs=1, callbacks=[callback])
    assert "module.extra.weight" in callback._average.state_dict()


SWA: list[dict[str, Any]] = [
    {"swa_lrs": 0.05},
    {"swa_lrs": [0.05], "swa_epoch_start": 2, "annealing_epochs": 2},
    {"swa_lrs": 0.05, "swa_epoch_start": 0.5, "annealing_strategy": "linear", "annealing_epochs": 3},
    {"swa_lrs": 0.05, "swa_epoch_start": 3, "device": None},
    {"swa_lrs": 0.05, "swa_epoch_start": 1, "avg_fn": lambda average, new, number: 0.5 * average + 0.5 * new},
]


@pytest.mark.parametrize("options", SWA, ids=lambda options: ",".join(options))
@pytest.mark.parametrize("make", [plain, with_scheduler, with_batch_norm])
@pytest.mark.filterwarnings("ignore:.*lr_scheduler")
@pytest.mark.filterwarnings("ignore:Detected call")
def test_swa_is_lightnings(options: dict[str, Any], make: Any) -> None:
    swas = [own.StochasticWeightAveraging(**options), reference.StochasticWeightAveraging(**options)]
    outcomes = [
        run(library, make, max_epochs=5, callbacks=[swa]) for library, swa in zip((OURS, THEIRS), swas, strict=True)
    ]
    ours, theirs = outcomes
    # Lightning ends its pass for batch norms with one more step of the optimiser, on gradients that are long taken.
    compared = ["net.1.running_mean", "net.1.running_var"] if make is with_batch_norm else list(ours.weights)
    for name in compared:
        assert torch.equal(ours.weights[name], theirs.weights[name]), name
    assert ours.steps == 30
    mine, other = swas[0].state_dict(), swas[1].state_dict()
    assert mine.keys() == other.keys()
    for key in ("n_averaged", "latest_update_epoch"):
        assert mine[key] == other[key]
    for name, value in mine["average_model_state"].items():
        assert torch.equal(value, other["average_model_state"][name])
        assert "running" in name or "tracked" in name or torch.equal(value, ours.weights[name])
    assert mine["scheduler_state"]["last_epoch"] == other["scheduler_state"]["last_epoch"]


def test_lightnings_own_swa_runs_here_with_batch_norm() -> None:
    ours = run(OURS, with_batch_norm, max_epochs=3, callbacks=[reference.StochasticWeightAveraging(0.05)])
    theirs = run(THEIRS, with_batch_norm, max_epochs=3, callbacks=[reference.StochasticWeightAveraging(0.05)])
    for name in ("net.1.running_mean", "net.1.running_var"):
        assert torch.equal(ours.weights[name], theirs.weights[name])
    assert ours.steps == 18


def test_batch_norm_gets_the_mean_of_all_batches() -> None:
    swa = own.StochasticWeightAveraging(0.05, swa_epoch_start=1)

    def use(trainer: Any, module: Any) -> Any:
        trainer.fit(module, loader())
        return trainer.max_epochs, trainer.current_epoch, module.net[1]

    epochs, current, norm = run(OURS, with_batch_norm, use=use, max_epochs=2, callbacks=[swa]).result
    assert (epochs, current) == (2, 3)
    assert norm.momentum == 0.1
    assert int(norm.num_batches_tracked) == 6


@pytest.mark.parametrize(
    "options",
    [
        {"swa_lrs": 0.0},
        {"swa_lrs": 1},
        {"swa_lrs": [0.1, 0.0]},
        {"swa_lrs": 0.1, "swa_epoch_start": 0},
        {"swa_lrs": 0.1, "swa_epoch_start": 1.5},
        {"swa_lrs": 0.1, "avg_fn": 3},
        {"swa_lrs": 0.1, "device": 3},
    ],
    ids=str,
)
def test_what_swa_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(MisconfigurationException):
        own.StochasticWeightAveraging(**options)
    with pytest.raises(Exception, match=r"."):
        reference.StochasticWeightAveraging(**options)


def test_swa_refuses_endless_parts_of_epochs() -> None:
    with pytest.raises(MisconfigurationException, match="max_epochs=-1"):
        run(OURS, max_epochs=-1, max_steps=3, callbacks=[own.StochasticWeightAveraging(0.1)])


def test_training_with_a_callback_that_never_updates_is_plain() -> None:
    class Never(own.WeightAveraging):
        def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
            return False

    before = compare(max_epochs=1)
    outcome = run(OURS, max_epochs=1, callbacks=[Never()])
    assert all(torch.equal(a, b) for a, b in zip(before.losses, outcome.losses, strict=True))
