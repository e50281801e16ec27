"""Training gives the same losses, weights, metrics and counters as under Lightning, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from tests.trainer.side_by_side import OURS, THEIRS, Library, assert_same, base_module, compare, data, loader, run

pytestmark = pytest.mark.filterwarnings("ignore")


def validation() -> DataLoader[Any]:
    return loader(12, shuffle=False)


CASES: dict[str, dict[str, Any]] = {
    "three epochs": {"max_epochs": 3},
    "with validation": {"max_epochs": 3, "val": validation},
    "with sanity check": {"max_epochs": 2, "val": validation, "num_sanity_val_steps": 2},
    "accumulation": {"max_epochs": 3, "accumulate_grad_batches": 2},
    "accumulation with a rest": {"max_epochs": 3, "accumulate_grad_batches": 4},
    "accumulation and clipping": {"max_epochs": 2, "accumulate_grad_batches": 3, "gradient_clip_val": 0.1},
    "clipping by norm": {"max_epochs": 2, "gradient_clip_val": 0.05},
    "clipping by value": {"max_epochs": 2, "gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
    "clipping off": {"max_epochs": 2, "gradient_clip_val": 0},
    "bf16-mixed": {"max_epochs": 2, "precision": "bf16-mixed", "val": validation},
    "bf16-mixed and clipping": {"max_epochs": 2, "precision": "bf16-mixed", "gradient_clip_val": 0.05},
    "64-true": {"max_epochs": 2, "precision": "64-true", "val": validation},
    "bf16-true": {"max_epochs": 2, "precision": "bf16-true"},
    "limited batches": {"max_epochs": 2, "limit_train_batches": 4, "limit_val_batches": 1, "val": validation},
    "limited by fractions": {"max_epochs": 2, "limit_train_batches": 0.5, "limit_val_batches": 0.7, "val": validation},
    "no training batches": {"max_epochs": 2, "limit_train_batches": 0},
    "overfitting": {"max_epochs": 4, "overfit_batches": 2, "val": validation},
    "overfitting on a fraction": {"max_epochs": 4, "overfit_batches": 0.5, "val": validation},
    "validation interval as count": {"max_epochs": 2, "val_check_interval": 2, "val": validation},
    "validation interval as fraction": {"max_epochs": 2, "val_check_interval": 0.5, "val": validation},
    "validation interval over epochs": {
        "max_epochs": 3,
        "val_check_interval": 4,
        "check_val_every_n_epoch": None,
        "val": validation,
    },
    "validation every second epoch": {"max_epochs": 4, "check_val_every_n_epoch": 2, "val": validation},
    "end after steps": {"max_steps": 8, "max_epochs": -1, "val": validation},
    "end after steps at an epoch's end": {"max_steps": 12, "max_epochs": -1, "val": validation},
    "end after a time": {"max_time": {"microseconds": 1}, "max_epochs": -1, "val": validation},
    "end after a time and epochs": {"max_time": {"microseconds": 1}, "max_epochs": 5, "min_epochs": 2},
    "no steps at all": {"max_steps": 0},
    "no epochs at all": {"max_epochs": 0},
    "dry run": {"fast_dev_run": True, "val": validation},
    "dry run of three": {"fast_dev_run": 3, "val": validation},
    "reloading": {"max_epochs": 3, "reload_dataloaders_every_n_epochs": 1, "val": validation},
    "barebones": {"max_epochs": 2, "barebones": True, "val": validation},
    "anomaly mode": {"max_epochs": 1, "detect_anomaly": True},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_training_is_the_same(case: dict[str, Any]) -> None:
    case = dict(case)
    if case.get("barebones"):
        case |= dict.fromkeys(
            ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary", "num_sanity_val_steps")
        )
    compare(**case)


def test_two_fits_go_on_where_the_first_ended() -> None:
    def twice(trainer: Any, module: Any) -> Any:
        trainer.fit(module, loader())
        trainer.fit_loop.max_epochs = 4
        trainer.fit(module, loader())

    outcome = compare(use=twice, max_epochs=2)
    assert outcome.epochs == 4
    assert outcome.steps == 24


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(data(20))


@pytest.mark.parametrize("limit", [None, 3])
def test_streams_without_length(limit: int | None) -> None:
    compare(
        train=lambda: DataLoader(Stream(), batch_size=4),
        val=lambda: DataLoader(Stream(), batch_size=4),
        max_epochs=2,
        limit_train_batches=limit,
    )


def lbfgs(library: Library) -> Any:
    class Module(base_module(library)):  # type: ignore[misc]
        def configure_optimizers(self) -> Any:
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=5)

    return Module()


def test_lbfgs_calls_its_closure_several_times() -> None:
    outcome = compare(lbfgs, max_epochs=2)
    assert len(outcome.losses) > outcome.steps == 12


def test_lbfgs_with_clipping() -> None:
    compare(lbfgs, max_epochs=1, gradient_clip_val=0.1)


def gan(library: Library) -> Any:
    class Gan(library.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self, clip: bool = False) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.generator, self.critic = nn.Linear(8, 4), nn.Linear(4, 1)
            self.losses: list[Any] = []

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            first, second = self.optimizers()
            scheduler = self.lr_schedulers()
            x, _ = batch
            self.toggle_optimizer(first)
            loss = -self.critic(torch.tanh(self.generator(x))).mean()
            first.zero_grad()
            self.manual_backward(loss)
            assert all(not p.requires_grad for p in self.critic.parameters())
            self.clip_gradients(first, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            first.step()
            self.untoggle_optimizer(first)
            with second.toggle_model():
                critic_loss = (
                    self.critic(torch.tanh(self.generator(x)).detach()).mean().exp()
                    + self.critic(x[:, :4]).pow(2).mean()
                )
                second.zero_grad()
                self.manual_backward(critic_loss)
                second.step()
            scheduler.step()
            self.log_dict({"g": loss, "c": critic_loss}, on_step=True, on_epoch=True)
            self.losses += [loss.detach().clone(), critic_loss.detach().clone()]
            return {"loss": loss, "extra": batch_idx}

        def configure_optimizers(self) -> Any:
            first = torch.optim.Adam(self.generator.parameters(), lr=0.01)
            second = torch.optim.SGD(self.critic.parameters(), lr=0.01, momentum=0.9)
            return [first, second], [torch.optim.lr_scheduler.ExponentialLR(first, 0.9)]

    return Gan()


def test_manual_optimisation_with_two_optimisers() -> None:
    outcome = compare(gan, max_epochs=2)
    assert outcome.steps == 24


def test_manual_optimisation_in_bf16() -> None:
    compare(gan, max_epochs=1, precision="bf16-mixed")


def test_manual_optimisation_with_a_closure() -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.automatic_optimization = False

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                optimizer = self.optimizers()

                def closure() -> Any:
                    loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
                    self.losses.append(loss.detach().clone())
                    optimizer.zero_grad()
                    self.manual_backward(loss)
                    return loss

                optimizer.step(closure=closure)

            def configure_optimizers(self) -> Any:
                return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)

        return Module()

    compare(make, max_epochs=2)


@pytest.mark.parametrize("interval", ["step", "epoch"])
@pytest.mark.parametrize("frequency", [1, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_schedulers(interval: str, frequency: int, accumulate: int) -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def configure_optimizers(self) -> Any:
                optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
                scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
                return [optimizer], [{"scheduler": scheduler, "interval": interval, "frequency": frequency}]

            def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
                self.events.append(f"{self.trainer.optimizers[0].param_groups[0]['lr']:.9f} {outputs['loss']:.9f}")

        return Module()

    outcome = compare(make, max_epochs=3, accumulate_grad_batches=accumulate, val=validation)
    assert len(set(outcome.events)) > 3


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_a_plateau_scheduler_watches_its_metric(interval: str) -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def configure_optimizers(self) -> Any:
                optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
                scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
                monitor = "loss_step" if interval == "step" else "val_loss"
                return {
                    "optimizer": optimizer,
                    "lr_scheduler": {"scheduler": scheduler, "interval": interval, "monitor": monitor},
                }

            def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
                self.events.append(str(self.trainer.optimizers[0].param_groups[0]["lr"]))

        return Module()

    outcome = compare(make, max_epochs=4, val=validation)
    assert len(set(outcome.events)) > 1


def test_a_plateau_scheduler_by_the_dict_s_monitor() -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def configure_optimizers(self) -> Any:
                optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
                scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
                return {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "loss"}

        return Module()

    compare(make, max_epochs=4)


def test_a_single_none_is_a_skip() -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def training_step(self, batch: Any, batch_idx: int) -> Any:
                loss = super().training_step(batch, batch_idx)
                return None if batch_idx % 3 == 1 else loss

        return Module()

    compare(make, max_epochs=2)
    compare(make, max_epochs=2, accumulate_grad_batches=2)


def test_a_dict_is_handed_on() -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def training_step(self, batch: Any, batch_idx: int) -> Any:
                return {"loss": super().training_step(batch, batch_idx), "index": batch_idx}

            def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
                self.events.append(f"{outputs['index']} {outputs['loss']:.9f} {outputs['loss'].requires_grad}")

        return Module()

    outcome = compare(make, max_epochs=1, accumulate_grad_batches=2)
    assert len(outcome.events) == 6


def test_overridden_steps_of_the_optimiser() -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def optimizer_step(self, epoch: Any, batch_idx: Any, optimizer: Any, optimizer_closure: Any = None) -> Any:
                self.events.append(f"{epoch} {batch_idx}")
                if batch_idx % 2:
                    loss = optimizer_closure()
                    self.events.append(f"{loss.item():.9f} {loss.requires_grad}")
                    optimizer.step()
                else:
                    super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)

            def optimizer_zero_grad(self, epoch: Any, batch_idx: Any, optimizer: Any) -> None:
                optimizer.zero_grad(set_to_none=False)

            def backward(self, loss: Any, *args: Any, **kwargs: Any) -> None:
                (loss * 0.5).backward()

            def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
                self.events.append(f"schedule {metric}")
                scheduler.step()

            def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
                super().configure_gradient_clipping(optimizer, *args, **kwargs)
                self.log("norm", torch.stack([p.grad.norm() for p in self.parameters()]).norm())

            def configure_optimizers(self) -> Any:
                optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
                return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

        return Module()

    outcome = compare(make, max_epochs=2, gradient_clip_val=0.05)
    assert outcome.metrics["norm"] <= 0.0501


@pytest.mark.parametrize("mode", ["min_size", "max_size", "max_size_cycle", None])
def test_several_training_loaders(mode: str | None) -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def training_step(self, batch: Any, batch_idx: int) -> Any:
                parts = [part for part in (batch["a"], *batch["b"]) if part is not None]
                return sum(super(Module, self).training_step(part, batch_idx) for part in parts)

        return Module()

    def loaders(library: Library) -> Any:
        from lightning.pytorch.utilities import CombinedLoader as Theirs

        from unstuck.trainer.data.combined import CombinedLoader as Ours

        together = {"a": loader(20), "b": [loader(12), loader(8, shuffle=False)]}
        return together if mode is None else (Ours if library is OURS else Theirs)(together, mode)

    ours = run(OURS, make, train=lambda: loaders(OURS), max_epochs=2)
    assert_same(ours, run(THEIRS, make, train=lambda: loaders(THEIRS), max_epochs=2))
    assert ours.steps > 0


def test_several_validation_loaders() -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
                self.events.append(f"{batch_idx} {dataloader_idx}")
                super().validation_step(batch, batch_idx)
                self.log(f"own_{dataloader_idx}", float(batch_idx), add_dataloader_idx=False)

        return Module()

    outcome = compare(
        make, val=lambda: [loader(12, shuffle=False), loader(8, shuffle=False)], max_epochs=2, num_sanity_val_steps=1
    )
    assert "val_loss/dataloader_idx_1" in outcome.metrics


def test_a_module_may_change_batches_and_steps_of_its_epochs() -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
                return [batch[0] + 1, batch[1]]

            def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
                return [batch[0] * 2, batch[1]]

            def on_train_batch_start(self, batch: Any, batch_idx: int) -> Any:
                return -1 if batch_idx == 3 + self.current_epoch else None

            def on_train_epoch_end(self) -> None:
                self.log("epochs_end", float(self.current_epoch))
                if self.current_epoch == 1:
                    self.trainer.should_stop = True

        return Module()

    outcome = compare(make, max_epochs=5)
    assert outcome.epochs == 2


@pytest.mark.parametrize("minimum", [{"min_epochs": 3}, {"min_steps": 10}, {}])
def test_should_stop_respects_the_minima(minimum: dict[str, int]) -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
                if self.global_step == 4:
                    self.trainer.should_stop = True

        return Module()

    compare(make, max_epochs=5, val=validation, **minimum)


def test_a_datamodule_provides_the_data() -> None:
    def use(library: Library) -> Any:
        class Data(library.LightningDataModule):  # type: ignore[name-defined, misc]
            def setup(self, stage: str) -> None:
                self.stage = stage

            def train_dataloader(self) -> Any:
                return loader()

            def val_dataloader(self) -> Any:
                return validation()

        return lambda trainer, module: trainer.fit(module, datamodule=Data())

    ours = run(OURS, use=use(OURS), max_epochs=2)
    assert_same(ours, run(THEIRS, use=use(THEIRS), max_epochs=2))


def test_no_optimiser_at_all() -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def configure_optimizers(self) -> Any:
                return None

        return Module()

    compare(make, max_epochs=1)


@pytest.mark.parametrize("method", ["validate", "test", "predict"])
def test_evaluations(method: str) -> None:
    ours, theirs = (
        run(
            library,
            train=lambda: (
                [loader(12, shuffle=False), loader(8, shuffle=False)] if method == "predict" else validation()
            ),
            method=method,
            limit_predict_batches=1,
        )
        for library in (OURS, THEIRS)
    )
    assert_same(ours, theirs)
    if method == "predict":
        assert all(
            torch.equal(a, b)
            for own, other in zip(ours.result, theirs.result, strict=True)
            for a, b in zip(own, other, strict=True)
        )
        assert [len(part) for part in ours.result] == [1, 1]
    else:
        assert ours.result == theirs.result
        assert ours.result


def test_estimated_stepping_batches_while_optimisers_are_configured() -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def configure_optimizers(self) -> Any:
                optimizer = torch.optim.Adam(self.parameters(), lr=0.02)
                total = self.trainer.estimated_stepping_batches
                self.events.append(str(total))
                scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=total)
                return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

        return Module()

    outcome = compare(make, max_epochs=3, accumulate_grad_batches=2)
    assert outcome.events == ["9"]
