"""Making modules and data modules from checkpoints, and the hooks around saving and loading."""

from __future__ import annotations

import argparse
import logging
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import nn

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, THEIRS, Library, base_module, loader
from unstuck.callbacks import EarlyStopping
from unstuck.errors import CheckpointError, MisconfigurationException
from unstuck.trainer.checkpoints.files import load_file


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="unstuck")


class Net(unstuck.LightningModule):
    def __init__(self, width: int, depth: int = 1, activation: Any = "tanh") -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(*(nn.Linear(8, width) for _ in range(depth)))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return sum(layer(batch[0]).square().mean() for layer in self.layers)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Nothing to see."""

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Data(unstuck.LightningDataModule):
    def __init__(self, batch_size: int = 4) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.given: Any = None

    def train_dataloader(self) -> Any:
        return loader(batch_size=self.hparams.batch_size)

    def val_dataloader(self) -> Any:
        return loader(8, shuffle=False)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": 3}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state


def saved(path: Path, module: Any = None, datamodule: Any = None, **keywords: Any) -> Any:
    trainer = unstuck.Trainer(**{**QUIET, "max_epochs": 1, **keywords})
    module = Net(width=3, depth=2) if module is None else module
    if datamodule is None:
        trainer.fit(module, loader(), loader(8, shuffle=False))
    else:
        trainer.fit(module, datamodule=datamodule)
    trainer.save_checkpoint(path)
    return module


def test_module_with_its_hyperparameters_and_weights(tmp_path: Path) -> None:
    module = saved(tmp_path / "a.ckpt")
    loaded = Net.load_from_checkpoint(tmp_path / "a.ckpt")
    assert dict(loaded.hparams) == {"width": 3, "depth": 2, "activation": "tanh"}
    for name, weight in module.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)
    changed = Net.load_from_checkpoint(str(tmp_path / "a.ckpt"), activation="relu", map_location="cpu")
    assert changed.hparams.activation == "relu"
    with open(tmp_path / "a.ckpt", "rb") as file:
        assert Net.load_from_checkpoint(file).hparams.width == 3


def test_weights_that_dont_fit_are_explained(tmp_path: Path) -> None:
    saved(tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match=r"don't fit Net(.|\n)*size mismatch(.|\n)*strict=False"):
        Net.load_from_checkpoint(tmp_path / "a.ckpt", width=5)
    with pytest.raises(CheckpointError, match=r"Unexpected key(.|\n)*layers\.1"):
        Net.load_from_checkpoint(tmp_path / "a.ckpt", depth=1)
    assert Net.load_from_checkpoint(tmp_path / "a.ckpt", depth=1, strict=False).hparams.depth == 1

    class Lenient(Net):
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            self.strict_loading = False

    assert Lenient.load_from_checkpoint(tmp_path / "a.ckpt", depth=1).hparams.depth == 1
    with pytest.raises(CheckpointError):
        Lenient.load_from_checkpoint(tmp_path / "a.ckpt", depth=1, strict=True)


def test_missing_arguments_are_named(tmp_path: Path) -> None:
    class Silent(Net):
        def __init__(self, width: int, other: str = "x") -> None:
            unstuck.LightningModule.__init__(self)
            self.layers = nn.Sequential(nn.Linear(8, width))

    saved(tmp_path / "a.ckpt", Silent(width=3))
    with pytest.raises(CheckpointError, match=r"needs the arguments 'width'.*save_hyperparameters"):
        Silent.load_from_checkpoint(tmp_path / "a.ckpt")
    assert Silent.load_from_checkpoint(tmp_path / "a.ckpt", width=3).layers[0].out_features == 3
    for name, text in (("h.yaml", "width: 3\n"), ("h.csv", "key,value\nwidth,3\n")):
        (tmp_path / name).write_text(text)
        assert (
            Silent.load_from_checkpoint(tmp_path / "a.ckpt", hparams_file=tmp_path / name).layers[0].out_features == 3
        )
    with pytest.raises(ValueError, match=r"\.yaml"):
        Silent.load_from_checkpoint(tmp_path / "a.ckpt", hparams_file="h.json")


def test_one_collection_of_hyperparameters(tmp_path: Path) -> None:
    class Collected(Net):
        def __init__(self, config: Any, extra: int = 1) -> None:
            unstuck.LightningModule.__init__(self)
            self.save_hyperparameters(config)
            self.extra = extra
            values = vars(config) if isinstance(config, argparse.Namespace) else config
            self.layers = nn.Sequential(nn.Linear(8, values["width"]))

    saved(tmp_path / "a.ckpt", Collected({"width": 3, "name": "x"}))
    loaded = Collected.load_from_checkpoint(tmp_path / "a.ckpt", name="y", extra=5)
    assert (dict(loaded.hparams), loaded.extra) == ({"width": 3, "name": "y"}, 5)
    saved(tmp_path / "b.ckpt", Collected(argparse.Namespace(width=3)))
    assert dict(Collected.load_from_checkpoint(tmp_path / "b.ckpt").hparams) == {"width": 3}


def test_objects_as_hyperparameters_need_trust(tmp_path: Path) -> None:
    saved(tmp_path / "a.ckpt", Net(width=3, activation=partial(max, 1)))
    with pytest.raises(CheckpointError, match=r"functools\.partial.*weights_only=False"):
        Net.load_from_checkpoint(tmp_path / "a.ckpt")
    loaded = Net.load_from_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    assert loaded.hparams.activation(3) == 3
    trainer = unstuck.Trainer(**QUIET, max_epochs=2)
    with pytest.raises(CheckpointError, match="weights_only=False"):
        trainer.fit(Net(width=3), loader(), loader(8, shuffle=False), ckpt_path=tmp_path / "a.ckpt")
    trainer.fit(Net(3), loader(), loader(8, shuffle=False), ckpt_path=tmp_path / "a.ckpt", weights_only=False)
    trainer.validate(Net(3), loader(8, shuffle=False), ckpt_path=tmp_path / "a.ckpt", weights_only=False)
    assert trainer.global_step == 12


def test_layers_of_configure_model_are_loaded(tmp_path: Path) -> None:
    class Late(Net):
        def __init__(self) -> None:
            unstuck.LightningModule.__init__(self)
            self.layers: Any = None

        def configure_model(self) -> None:
            if self.layers is None:
                self.layers = nn.Sequential(nn.Linear(8, 3))

    module = saved(tmp_path / "a.ckpt", Late())
    loaded = Late.load_from_checkpoint(tmp_path / "a.ckpt")
    assert torch.equal(loaded.layers[0].weight, module.layers[0].weight)


def test_data_module_with_its_hyperparameters_and_state(tmp_path: Path) -> None:
    saved(tmp_path / "a.ckpt", datamodule=Data(batch_size=6))
    loaded = Data.load_from_checkpoint(tmp_path / "a.ckpt")
    assert (dict(loaded.hparams), loaded.given) == ({"batch_size": 6}, {"seen": 3})
    assert Data.load_from_checkpoint(tmp_path / "a.ckpt", batch_size=2).hparams.batch_size == 2
    fresh = Data()
    unstuck.Trainer(**QUIET, max_epochs=2).fit(Net(3, 2), datamodule=fresh, ckpt_path=tmp_path / "a.ckpt")
    assert fresh.given == {"seen": 3}


def test_called_on_an_instance_it_says_so(tmp_path: Path) -> None:
    for instance in (Net(3), Data()):
        with pytest.raises(TypeError, match=f"{type(instance).__name__}.load_from_checkpoint` makes a new object"):
            instance.load_from_checkpoint(tmp_path / "a.ckpt")


def test_saving_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="Call `fit`"):
        unstuck.Trainer(**QUIET, max_epochs=1).save_checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(TypeError, match="storage_options"):
        unstuck.Trainer(**QUIET, max_epochs=1).save_checkpoint(tmp_path / "a.ckpt", storage_options={})
    trainer = unstuck.Trainer(**QUIET)
    trainer.validate(Net(3), loader(8, shuffle=False), verbose=False)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    assert load_file(tmp_path / "a.ckpt")["global_step"] == 0
    trainer.save_checkpoint(tmp_path / "b.ckpt", weights_only=True)
    assert {"optimizer_states", "callbacks", "unstuck"} & set(load_file(tmp_path / "b.ckpt")) == set()


# Hooks.


def hooks_of(library: Library, folder: Path) -> list[list[str]]:
    """What is called when a run is saved and when one begins from the file, per method."""
    calls: list[str] = []

    class Module(base_module(library)):  # type: ignore[misc]
        def __init__(self, a: int = 1) -> None:
            super().__init__()
            self.save_hyperparameters()

        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            calls.append(f"module.on_save_checkpoint {sorted(set(checkpoint) - {'unstuck'})}")
            checkpoint["extra"] = 7

        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            calls.append(f"module.on_load_checkpoint {checkpoint['extra']}")

        def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(f"module.load_state_dict {kwargs}")
            return super().load_state_dict(*args, **kwargs)

        def configure_model(self) -> None:
            calls.append("module.configure_model")

        def on_fit_start(self) -> None:
            calls.append(f"module.on_fit_start {self.global_step}")

        def on_train_start(self) -> None:
            calls.append(f"module.on_train_start {self.global_step}")

    class Datamodule(library.LightningDataModule):  # type: ignore[misc, name-defined]
        def train_dataloader(self) -> Any:
            return loader()

        def val_dataloader(self) -> Any:
            return loader(8, shuffle=False)

        test_dataloader = predict_dataloader = val_dataloader

        def setup(self, stage: str) -> None:
            calls.append(f"datamodule.setup {getattr(stage, 'value', stage)}")

        def state_dict(self) -> dict[str, Any]:
            calls.append("datamodule.state_dict")
            return {"z": 1}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            calls.append(f"datamodule.load_state_dict {state}")

    class Callback(library.Callback):  # type: ignore[misc, name-defined]
        def state_dict(self) -> dict[str, Any]:
            calls.append("callback.state_dict")
            return {"q": 2}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            calls.append(f"callback.load_state_dict {state}")

        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
            calls.append(f"callback.on_save_checkpoint {sorted(set(checkpoint) - {'unstuck'})}")

        def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
            calls.append(f"callback.on_load_checkpoint {sorted(set(checkpoint) - {'unstuck'})}")

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = library.Trainer(**QUIET, max_epochs=1, callbacks=[Callback()])
        trainer.fit(Module(), datamodule=Datamodule())
        for weights_only in (False, True):
            calls.clear()
            path = folder / f"{library.name}{weights_only}.ckpt"
            trainer.save_checkpoint(path, weights_only=weights_only)
            found.append(list(calls))
            for method in ("fit", "validate", "test", "predict"):
                calls.clear()
                if not (weights_only and method == "fit"):
                    again = library.Trainer(**QUIET, max_epochs=2, callbacks=[Callback()])
                    getattr(again, method)(Module(), datamodule=Datamodule(), ckpt_path=path)
                    found.append(list(calls))
            calls.clear()
            Module.load_from_checkpoint(path)
            found.append(list(calls))
    return found


def test_hooks_around_checkpoints_are_lightnings(tmp_path: Path) -> None:
    for ours, theirs in zip(hooks_of(OURS, tmp_path), hooks_of(THEIRS, tmp_path), strict=True):
        assert ours == theirs


def test_hooks_of_a_data_module(tmp_path: Path) -> None:
    """Which only this package calls."""

    class Hooked(Data):
        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["mine"] = 5

        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            self.mine = checkpoint["mine"]

    saved(tmp_path / "a.ckpt", datamodule=Hooked())
    assert Hooked.load_from_checkpoint(tmp_path / "a.ckpt").mine == 5
    fresh = Hooked()
    unstuck.Trainer(**QUIET, max_epochs=2).fit(Net(3, 2), datamodule=fresh, ckpt_path=tmp_path / "a.ckpt")
    assert fresh.mine == 5


# States of callbacks.


class Counter(unstuck.Callback):
    def __init__(self, name: str = "") -> None:
        self.name, self.count = name, 0

    @property
    def state_key(self) -> str:
        return f"Counter{self.name}"

    def on_train_batch_end(self, *_: Any) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def test_states_of_callbacks_go_on(tmp_path: Path) -> None:
    stopping = EarlyStopping("loss", patience=50)

    class Logs(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

    saved(tmp_path / "a.ckpt", Logs(3, 2), callbacks=[Counter("a"), Counter("b"), stopping])
    states = load_file(tmp_path / "a.ckpt")["callbacks"]
    assert states["Countera"] == {"count": 6} and stopping.state_key in states
    first, second = Counter("b"), Counter("a")
    trainer = unstuck.Trainer(**QUIET, max_epochs=2, callbacks=[first, second, EarlyStopping("loss", patience=50)])
    trainer.fit(Logs(3, 2), loader(), loader(8, shuffle=False), ckpt_path=tmp_path / "a.ckpt")
    assert (first.count, second.count) == (12, 12)
    assert trainer.early_stopping_callback.best_score <= stopping.best_score


def test_missing_callbacks_are_named_when_a_fit_goes_on(tmp_path: Path) -> None:
    saved(tmp_path / "a.ckpt", callbacks=[Counter("a")])
    with pytest.warns(UserWarning, match="doesn't have: Countera"):
        unstuck.Trainer(**QUIET, max_epochs=2).fit(
            Net(3, 2), loader(), loader(8, shuffle=False), ckpt_path=tmp_path / "a.ckpt"
        )
    # To evaluate nobody needs them.
    unstuck.Trainer(**QUIET).validate(Net(3, 2), loader(8, shuffle=False), ckpt_path=tmp_path / "a.ckpt")


def test_two_states_under_one_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MisconfigurationException, match=r"'Counter'.*state_key"):
        saved(tmp_path / "a.ckpt", callbacks=[Counter(), Counter()])


def test_what_a_fit_cant_go_on_from(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    module, batches = saved(path), loader()

    def resume(made: Any, **keywords: Any) -> None:
        trainer = unstuck.Trainer(**{**QUIET, "max_epochs": 2, **keywords})
        trainer.fit(made, batches, loader(8, shuffle=False), ckpt_path=path)

    with pytest.raises(CheckpointError, match="don't fit Net"):
        resume(Net(4, 2))
    with pytest.raises(MisconfigurationException, match=r"epoch 1, but `Trainer\(max_epochs=0\)`"):
        resume(Net(3, 2), max_epochs=0)

    class Two(Net):
        def __init__(self) -> None:
            super().__init__(3, 2)
            self.automatic_optimization = False

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in self.layers]

    with pytest.raises(CheckpointError, match=r"1 optimizers.*made 2"):
        resume(Two())

    class Fewer(Net):
        def configure_optimizers(self) -> Any:
            return torch.optim.SGD([self.layers[0].weight], lr=0.1)

    with pytest.raises(CheckpointError, match="state of SGD"):
        resume(Fewer(3, 2))
    checkpoint = torch.load(path)
    del checkpoint["loops"]["fit_loop"]["epoch_progress"]
    torch.save(checkpoint, path)
    with pytest.raises(CheckpointError, match=r"where its training stood.*load_from_checkpoint"):
        resume(Net(3, 2))
    assert module.global_step == 6


def test_lightnings_checkpoint_callback_saves_here(tmp_path: Path) -> None:
    saver = pl.callbacks.ModelCheckpoint(dirpath=tmp_path, monitor="score", save_top_k=2, save_last=True)

    class Scores(Net):
        def on_validation_epoch_end(self) -> None:
            self.log("score", [3.0, 1.0, 2.0, 4.0][self.current_epoch])

    trainer = unstuck.Trainer(**{**QUIET, "enable_checkpointing": True}, max_epochs=3, callbacks=[saver])
    trainer.fit(Scores(3, 2), loader(), loader(8, shuffle=False))
    assert trainer.checkpoint_callbacks == [saver]
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == [
        "epoch=1-step=12.ckpt",
        "epoch=2-step=18.ckpt",
        "last.ckpt",
    ]
    trainer.validate(Scores(3, 2), loader(8, shuffle=False), ckpt_path="best", verbose=False)
    assert trainer.ckpt_path == saver.best_model_path == str(tmp_path / "epoch=1-step=12.ckpt")


def test_module_that_is_only_connected_can_be_saved(tmp_path: Path) -> None:
    """The way to a checkpoint without a run that programs for Lightning know."""
    trainer, module = unstuck.Trainer(**QUIET), Net(3, 2)
    trainer.strategy.connect(module)
    assert trainer.lightning_module is module
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    loaded = Net.load_from_checkpoint(tmp_path / "a.ckpt")
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), module.parameters(), strict=True))
    checkpoint = torch.load(tmp_path / "a.ckpt")
    assert (checkpoint["epoch"], checkpoint["global_step"], checkpoint["optimizer_states"]) == (0, 0, [])
