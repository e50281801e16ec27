"""What lets a training learn nothing without a word elsewhere is told here: by an error, or by one warning with
names.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, base_module, loader
from unstuck.errors import MisconfigurationException
from unstuck.messages import PossibleUserWarning

Base: Any = base_module(OURS)


class Plain(Base):
    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        return None


def fit(module: Any, val: Any = None, **keywords: Any) -> Any:
    trainer = unstuck.Trainer(**{**QUIET, "max_epochs": 1, **keywords})
    trainer.fit(module, loader(), val if val is not None else loader(8, shuffle=False))
    return trainer


def messages_of(action: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(warning.message) for warning in caught]


# training_step that returns nothing


class Forgetful(Plain):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.log("loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]))


def test_a_forgotten_return_is_an_error_that_names_the_place() -> None:
    with (
        pytest.warns(UserWarning, match="None"),
        pytest.raises(
            MisconfigurationException,
            match=r"Forgetful\.training_step.*test_silent_failures\.py:\d+.*None on all 6",
        ),
    ):
        fit(Forgetful())


class Sparing(Plain):
    """Returns None for the batches that are listed, counted over the whole fit."""

    without: frozenset[int] = frozenset()
    steps = 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.steps += 1
        return None if self.steps - 1 in self.without else super().training_step(batch, batch_idx)


def fit_without(*batches: int, **keywords: Any) -> Any:
    module = Sparing()
    module.without = frozenset(batches)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(module, **keywords)


@pytest.mark.parametrize(
    ("batches", "keywords"),
    [
        # The second epoch is cut short after the one batch that is skipped.
        ([6], {"max_epochs": 2, "max_steps": 7}),
        # Every epoch has one batch only.
        ([1], {"max_epochs": 3, "limit_train_batches": 1}),
        ([0], {"gradient_clip_val": 0.5, "gradient_clip_algorithm": "value"}),
        ([0], {"gradient_clip_val": 0.5}),
    ],
    ids=str,
)
def test_single_nones_are_skips_wherever_they_come(batches: list[int], keywords: dict[str, Any]) -> None:
    trainer = fit_without(*batches, **keywords)
    assert trainer.state.finished


@pytest.mark.parametrize(
    ("batches", "keywords"),
    [
        (range(1), {"limit_train_batches": 1}),
        (range(2), {"max_steps": 2}),
        (range(6, 12), {"max_epochs": 2}),
    ],
    ids=str,
)
def test_nones_alone_are_an_error(batches: range, keywords: dict[str, Any]) -> None:
    with pytest.raises(MisconfigurationException, match=f"None on all {len(batches)} batches"):
        fit_without(*batches, **keywords)


def test_a_single_none_is_a_skip_with_one_warning() -> None:
    class Sometimes(Plain):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx else super().training_step(batch, batch_idx)

    module = Sometimes()
    said = messages_of(lambda: fit(module, max_epochs=2))
    assert len([text for text in said if "None" in text]) == 1


def test_a_wanted_skip_has_a_marker() -> None:
    class Skipping(Plain):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return unstuck.SKIP_STEP

    module = Skipping()
    before = [p.clone() for p in module.parameters()]
    trainer = fit(module)
    assert all(torch.equal(own, other) for own, other in zip(module.parameters(), before, strict=True))
    assert trainer.global_step == 6


def test_skipped_steps_take_no_part_in_epoch_means() -> None:
    class Sometimes(Plain):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx % 2:
                return unstuck.SKIP_STEP
            self.log("index", float(batch_idx), on_epoch=True)
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    assert fit(Sometimes()).callback_metrics["index_epoch"] == 2.0


# Modes


class Frozen(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8)).requires_grad_(False).eval()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.1)


def test_a_trained_module_in_eval_mode_is_told_by_name() -> None:
    module = Plain()
    module.net.eval()
    with pytest.warns(PossibleUserWarning, match=r"eval mode.*net\.0.*net\.2"):
        fit(module)


def test_a_frozen_backbone_in_eval_mode_is_fine() -> None:
    module = Frozen()
    fit(module)
    assert not module.backbone[1].training
    assert module.net.training


# Parameters and optimisers


def test_parameters_in_no_optimiser_are_named() -> None:
    class Partial(Plain):
        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.net[0].parameters(), lr=0.1)

    with pytest.warns(PossibleUserWarning, match=r"2 trainable parameter.*net\.3\.weight, net\.3\.bias"):
        fit(Partial())


def test_tensors_that_are_no_longer_the_module_s_are_told() -> None:
    class Replacing(Plain):
        def on_fit_start(self) -> None:
            self.net[3] = nn.Linear(16, 1)

    said = messages_of(lambda: fit(Replacing()))
    assert any("no parameters of the module (any more)" in text and "(1, 16)" in text for text in said)
    assert any("in no optimizer" in text and "net.3.weight" in text for text in said)


# Schedules that don't fit the run


def scheduled(make: Callable[[Any], Any], **keys: Any) -> Any:
    class Scheduled(Plain):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            return [optimizer], [{"scheduler": make(optimizer), **keys}]

    return Scheduled()


schedulers = torch.optim.lr_scheduler


@pytest.mark.parametrize(
    ("make", "keys", "word"),
    [
        (lambda o: schedulers.CosineAnnealingLR(o, T_max=600), {}, "T_max=600"),
        (lambda o: schedulers.CosineAnnealingLR(o, T_max=10), {"interval": "step"}, "T_max=10"),
        (lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=10), {"interval": "step"}, "total_steps=10"),
        (lambda o: schedulers.MultiStepLR(o, [300, 500]), {}, "milestones from 300"),
        (lambda o: schedulers.StepLR(o, 200), {}, "step_size=200"),
        (lambda o: schedulers.StepLR(o, 1, gamma=0.1), {"interval": "step"}, "gamma=0.1"),
        (lambda o: schedulers.LambdaLR(o, lambda step: max(0.0, 1 - step / 600)), {}, "factor of 0 from step 600"),
        (lambda o: schedulers.LambdaLR(o, lambda step: max(0.0, 1 - step / 10)), {"interval": "step"}, "from step 10"),
    ],
)
def test_a_schedule_of_another_length_than_the_run_is_told(make: Any, keys: dict[str, Any], word: str) -> None:
    module = scheduled(make, **keys)
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fit(module, max_epochs=10)
        except ValueError as error:  # OneCycleLR refuses to go on after its end
            assert "Tried to step" in str(error)  # noqa: PT017
        said = [str(warning.message) for warning in caught]
    assert any("doesn't fit this run" in text and word in text for text in said), said


@pytest.mark.parametrize(
    ("make", "keys"),
    [
        (lambda o: schedulers.CosineAnnealingLR(o, T_max=10), {}),
        (lambda o: schedulers.CosineAnnealingLR(o, T_max=60), {"interval": "step"}),
        (lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=60), {"interval": "step"}),
        (lambda o: schedulers.StepLR(o, 3), {}),
        (lambda o: schedulers.MultiStepLR(o, [4, 8]), {}),
        (lambda o: schedulers.LinearLR(o, total_iters=5), {"interval": "step"}),
        (lambda o: schedulers.LambdaLR(o, lambda step: 0.99**step), {"interval": "step"}),
        (lambda o: schedulers.ExponentialLR(o, 0.9), {}),
    ],
)
def test_a_schedule_that_fits_says_nothing(make: Any, keys: dict[str, Any]) -> None:
    fit(scheduled(make, **keys), max_epochs=10)


def test_unknown_keys_of_a_scheduler_are_told() -> None:
    with pytest.warns(RuntimeWarning, match="every"):
        fit(scheduled(lambda o: schedulers.StepLR(o, 1), every="step"))


def test_one_cycle_per_epoch_is_told() -> None:
    with pytest.warns(RuntimeWarning, match="OneCycleLR is stepped once per epoch"):
        fit(scheduled(lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=4)), max_epochs=2)


# Gradients


def test_clipping_before_there_are_gradients_is_told() -> None:
    class Clipping(Plain):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)
            return loss

    with pytest.warns(PossibleUserWarning, match=r"clip_grad_norm_.*backward comes after"):
        fit(Clipping())


def test_automatic_accumulation_divides_the_loss_and_manual_doesn_t() -> None:
    torch.manual_seed(0)
    seen: dict[str, list[float]] = {"automatic": [], "manual": []}

    class Automatic(Plain):
        kind = "automatic"

        def on_before_backward(self, loss: Any) -> None:
            seen[self.kind].append(float(loss.detach()))

    class Manual(Automatic):
        kind = "manual"

        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.manual_backward(loss)
            if batch_idx % 2:
                self.optimizers().step()
                self.optimizers().zero_grad()

    for kind, keywords in ((Automatic, {"accumulate_grad_batches": 2}), (Manual, {})):
        module = kind()
        fit(module, **keywords)
        divisor = 2 if kind is Automatic else 1
        assert seen[kind.kind] == pytest.approx([float(loss) / divisor for loss in module.losses])


def test_the_other_network_s_gradients_don_t_leak_when_toggled() -> None:
    class Gan(unstuck.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.generator, self.critic = nn.Linear(8, 4), nn.Linear(4, 1)
            self.before: list[bool] = []

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            first, second = self.optimizers()
            with first.toggle_model():
                first.zero_grad()
                self.manual_backward(self.critic(self.generator(batch[0])).mean())
                first.step()
            self.before.append(all(p.grad is None for p in self.critic.parameters()))
            with second.toggle_model():
                self.manual_backward(self.critic(self.generator(batch[0]).detach()).mean())
                second.step()
                second.zero_grad()
            assert all(p.requires_grad for p in self.parameters())

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.generator, self.critic)]

    module = Gan()
    unstuck.Trainer(**QUIET, max_epochs=1).fit(module, loader())
    assert module.before == [True] * 6


# Validation that changes the training


class Drawing(Plain):
    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        torch.rand(3)
        random.random()


def trained(module: Any, **keywords: Any) -> list[torch.Tensor]:
    torch.manual_seed(3)
    random.seed(3)
    module.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))
    fit(module, max_epochs=3, **keywords)
    return list(module.losses)


def test_isolated_validation_leaves_the_training_as_it_is_without() -> None:
    without = trained(Drawing(), limit_val_batches=0)
    isolated = trained(Drawing(), isolate_validation=True)
    shared = trained(Drawing())
    assert all(map(torch.equal, without, isolated))
    assert not all(map(torch.equal, without, shared))


def test_random_numbers_that_a_validation_drew_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="unstuck"):
        fit(Drawing(), max_epochs=3)
    assert len([text for text in caplog.messages if "isolate_validation" in text]) == 1


def test_changed_buffers_are_told_by_name() -> None:
    class Counting(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            self.seen += 1

    with pytest.warns(PossibleUserWarning, match=r"validation changed state.*seen"):
        fit(Counting())


def test_every_module_gets_back_its_mode() -> None:
    class Mixed(Frozen):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            assert self.net.training
            assert not self.backbone.training

        def on_validation_start(self) -> None:
            assert not any(module.training for module in self.modules())

    module = Mixed()
    fit(module, max_epochs=2, val_check_interval=2)
    assert module.training
    assert not module.backbone.training


# Limits


class Stages(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.validated = 0

    def on_validation_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.validated += 1


@pytest.mark.parametrize(
    ("keywords", "argument", "smallest"),
    [
        ({"limit_train_batches": 0.05}, "limit_train_batches", "0.1"),
        ({"overfit_batches": 0.05}, "overfit_batches", "0.1"),
    ],
)
def test_a_fraction_that_leaves_no_batch_is_an_error_before_any_batch(
    keywords: dict[str, Any], argument: str, smallest: str
) -> None:
    module = Stages()
    with pytest.raises(MisconfigurationException, match=rf"{argument}.*train_dataloader.*{smallest}"):
        fit(module, num_sanity_val_steps=2, **keywords)
    assert module.validated == 0


@pytest.mark.filterwarnings("ignore")
def test_overfitting_leaves_a_switched_off_validation_off() -> None:
    module = Stages()
    fit(module, overfit_batches=1, limit_val_batches=0, num_sanity_val_steps=2)
    assert module.validated == 0


def test_num_training_batches_is_known_while_training_runs() -> None:
    class Dividing(Plain):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            assert 1 / self.trainer.num_training_batches == 1 / 3

    fit(Dividing(), limit_train_batches=0.5)


def test_the_sanity_check_leaves_no_trace() -> None:
    class Watching(Base):
        def on_train_start(self) -> None:
            assert self.trainer.callback_metrics == {}
            assert not self.trainer.sanity_checking

    module = Watching()
    trainer = unstuck.Trainer(**{**QUIET, "max_epochs": 1, "num_sanity_val_steps": -1})
    trainer.fit(module, loader(), loader(12, shuffle=False))
    assert "val_loss" in trainer.callback_metrics
