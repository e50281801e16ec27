"""What users of trainers expect of gradient norms and clipping, one test for each expectation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, base_module, loader
from unstuck.callbacks import GradientMonitor
from unstuck.errors import MisconfigurationException
from unstuck.trainer.precision import MixedPrecision
from unstuck.utilities import grad_norm

# The module can validate; these fits don't. What isn't finite is made so on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:There is .*validation_step"),
    pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning"),
]

Base: Any = base_module(OURS)
LIMIT = 0.01


def fit(module: Any, **keywords: Any) -> Any:
    torch.manual_seed(0)
    trainer = unstuck.Trainer(**{**QUIET, "max_epochs": 1, **keywords})
    trainer.fit(module, loader(shuffle=False))
    return trainer


def small_scale() -> MixedPrecision:
    """float16 with a scale that doesn't overflow at the start."""
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=64.0))


def seeded(kind: Callable[..., Any], *args: Any) -> Any:
    torch.manual_seed(1)
    return kind(*args)


def norm_of(parameters: Any) -> float:
    """The 2-norm of all gradients, the slow way."""
    return math.sqrt(sum(float(p.grad.double().pow(2).sum()) for p in parameters if p.grad is not None))


class Manual(Base):
    """Two optimisers that take turns; one or both are clipped, before either steps or each before its own step."""

    def __init__(self, limits: tuple[float | None, float | None] = (LIMIT, LIMIT), together: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.limits, self.together = limits, together
        self.before: list[float] = []
        self.clipped: list[tuple[float, float]] = []

    def parts(self) -> list[list[nn.Parameter]]:
        return [list(self.net[index].parameters()) for index in (0, 3)]

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part, lr=0.1) for part in self.parts()]

    def clip(self, index: int, optimizer: Any) -> None:
        if (limit := self.limits[index]) is not None:
            self.clip_gradients(optimizer, gradient_clip_val=limit, gradient_clip_algorithm="norm")

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizers = self.optimizers()
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        if self.together:
            for index, optimizer in enumerate(optimizers):
                self.clip(index, optimizer)
        for index, optimizer in enumerate(optimizers):
            if not self.together:
                self.clip(index, optimizer)
            optimizer.step()
        first, second = (norm_of(part) for part in self.parts())
        self.clipped.append((first, second))


def test_unscale_then_clip_then_step() -> None:
    order: list[str] = []

    class Watching(Base):
        def on_before_optimizer_step(self, optimizer: Any) -> None:
            order.append("hook")
            self.seen = norm_of(self.parameters())

        def on_train_batch_end(self, *args: Any) -> None:
            assert norm_of(self.parameters()) <= LIMIT * 1.01
            order.append("end")

    torch.manual_seed(1)
    module = Watching()
    fit(module, plugins=small_scale(), gradient_clip_val=LIMIT)
    assert order == ["hook", "end"] * 6
    assert LIMIT < module.seen < 20.0


@pytest.mark.parametrize("together", [False, True])
def test_manual_clipping_sees_unscaled_gradients(together: bool) -> None:
    scaled, plain = seeded(Manual, (LIMIT, LIMIT), together), seeded(Manual, (LIMIT, LIMIT), together)
    trainer = fit(scaled, plugins=small_scale())
    fit(plain)
    assert trainer.scaler.get_scale() == 64.0
    for own, other in zip(scaled.clipped, plain.clipped, strict=True):
        assert own == pytest.approx(other, rel=1e-3)
        assert own[0] == pytest.approx(LIMIT, rel=1e-3)
    for (name, own_weight), other_weight in zip(scaled.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.allclose(own_weight, other_weight, atol=5e-4), name


def test_monitored_norms_of_manual_clipping_are_unscaled() -> None:
    found = []
    for plugins in (small_scale(), None):
        trainer = fit(seeded(Manual), plugins=plugins, limit_train_batches=1, callbacks=[GradientMonitor()])
        found.append({name: float(value) for name, value in trainer.callback_metrics.items() if "grad_" in name})
    assert found[0] == pytest.approx(found[1], rel=0.05)
    assert {"grad_2.0_norm_total_0", "grad_2.0_norm_total_1", "grad_2.0_norm_clipped_1"} <= set(found[0])


def test_a_scaler_drops_a_step_that_was_clipped_by_hand() -> None:
    class Overflowing(Manual):
        def manual_backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
            super().manual_backward(loss * math.inf if len(self.clipped) == 2 else loss)

    module = Overflowing(together=True)
    trainer = fit(module, plugins=small_scale())
    assert all(p.isfinite().all() for p in module.parameters())
    assert trainer.scaler.get_scale() == 16.0  # once for each optimiser


def test_own_clipping_of_a_skipped_step_leaves_the_scaler_ready() -> None:
    class Sometimes(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            return unstuck.SKIP_STEP if batch_idx % 2 else loss

        def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self.clip_gradients(optimizer, LIMIT)

    for accumulated in (1, 2):
        trainer = fit(Sometimes(), plugins=small_scale(), accumulate_grad_batches=accumulated)
        assert trainer.scaler.get_scale() == 64.0


def test_clipping_between_two_backward_passes_is_an_error_under_a_scaler() -> None:
    class Twice(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            first = self.optimizers()[0]
            for _ in range(2):
                self.manual_backward(Base.training_step(self, batch, batch_idx))
                self.clip(0, first)

    with pytest.raises(RuntimeError, match="after the last backward"):
        fit(Twice(), plugins=small_scale())
    module = Twice()
    fit(module)
    assert norm_of(module.parts()[0]) == pytest.approx(LIMIT, rel=1e-3)


def test_only_float16_with_a_fused_optimizer_conflicts_with_clipping() -> None:
    class Fused(Base):
        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), fused=True)

        def on_train_batch_end(self, *args: Any) -> None:
            assert norm_of(self.parameters()) <= LIMIT * 1.01

    for precision in ("bf16-mixed", "bf16-true", "32-true"):
        fit(Fused(), precision=precision, gradient_clip_val=LIMIT)
    with pytest.raises(RuntimeError, match="fused=False"):
        fit(Fused(), precision="16-mixed", gradient_clip_val=LIMIT)


def test_statistics_of_a_fused_optimizer_are_unscaled() -> None:
    class Watching(Base):
        def __init__(self, fused: bool) -> None:
            super().__init__()
            self.fused = fused
            self.totals: list[float] = []
            self.monitored: list[float] = []

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), fused=self.fused)

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.totals.append(float(grad_norm(self, 2)["grad_2.0_norm_total"]))

        def on_train_batch_end(self, *args: Any) -> None:
            self.monitored.append(float(self.trainer.callback_metrics["grad_2.0_norm_total"]))

    fused, plain = seeded(Watching, True), seeded(Watching, False)
    fit(fused, plugins=small_scale(), callbacks=[GradientMonitor()])
    fit(plain, callbacks=[GradientMonitor()])
    assert fused.totals == pytest.approx(plain.totals, rel=0.05)
    assert fused.monitored == pytest.approx(fused.totals, rel=1e-4)
    for own, other in zip(fused.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(own, other, atol=0.02)


def test_norms_before_and_after_clipping_and_the_share_of_clipped_steps_are_logged() -> None:
    trainer = fit(seeded(Base), gradient_clip_val=LIMIT, log_every_n_steps=1, callbacks=[GradientMonitor("inf")])
    metrics = trainer.callback_metrics
    assert metrics["grad_inf_norm_total"] > LIMIT  # an infinity norm above the limit, and clipping isn't broken
    assert metrics["grad_inf_norm_clipped"] <= LIMIT
    assert metrics["grad_inf_norm_clipped"] < metrics["grad_inf_norm_total"]


@pytest.mark.parametrize(
    ("per_layer", "names"),
    [
        (False, set()),
        ("module", {"net.0", "net.3"}),
        (True, {"net.0.weight", "net.0.bias", "net.3.weight", "net.3.bias"}),
    ],
)
def test_total_or_norms_by_module_or_by_parameter(per_layer: Any, names: set[str]) -> None:
    metrics = fit(Base(), callbacks=[GradientMonitor(per_layer=per_layer)]).callback_metrics
    found = {name for name in metrics if name.startswith("grad_")}
    assert found == {"grad_2.0_norm_total"} | {f"grad_2.0_norm/{name}" for name in names}


def test_norms_are_those_before_gradients_are_cleared_and_no_gradient_is_not_zero() -> None:
    class Half(Base):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Linear(2, 2)

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            found = grad_norm(self, 2)
            assert found["grad_2.0_norm_total"] > 0
            assert not any("unused" in name for name in found)

    metrics = fit(Half(), callbacks=[GradientMonitor()]).callback_metrics
    assert metrics["grad_2.0_norm_total"] > 0
    assert not any("unused" in name for name in metrics)


@pytest.mark.parametrize("p", [1, 2, 3.5, "inf"])
def test_the_root_is_taken_once_and_the_total_is_that_of_one_vector(p: Any) -> None:
    module = seeded(Base)
    module.net(torch.randn(4, 8)).pow(2).mean().backward()
    gradients = [parameter.grad for parameter in module.parameters()]
    found = grad_norm(module, p)
    whole = torch.cat([gradient.reshape(-1) for gradient in gradients])
    assert float(found.pop(f"grad_{float(p)}_norm_total")) == pytest.approx(
        float(torch.linalg.vector_norm(whole, float(p))), rel=1e-5
    )
    for norm, gradient in zip(found.values(), gradients, strict=True):
        assert float(norm) == pytest.approx(float(torch.linalg.vector_norm(gradient, float(p))), rel=1e-5)


def test_small_gradients_are_not_rounded_to_zero() -> None:
    class Small(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch, batch_idx) * 1e-9

    total = float(fit(Small(), callbacks=[GradientMonitor()]).callback_metrics["grad_2.0_norm_total"])
    assert 0 < total < 1e-6


@pytest.mark.parametrize(
    ("keywords", "ways"),
    [
        ({"gradient_clip_val": 1.0}, ["self.clip_gradients", "automatic optimization"]),
        ({"accumulate_grad_batches": 2}, ["every n-th", "automatic optimization"]),
    ],
)
def test_automatic_options_in_manual_optimization_are_an_error_that_names_both_ways_out(
    keywords: dict[str, Any], ways: list[str]
) -> None:
    class Untouched(Manual):
        def on_fit_start(self) -> None:
            pytest.fail("training had begun")

    with pytest.raises(MisconfigurationException) as caught:
        fit(Untouched(), **keywords)
    assert all(way in str(caught.value) for way in ways)


def test_manual_optimization_clips_each_optimizer_by_its_own_value() -> None:
    module = seeded(Manual, (LIMIT, None))
    fit(module)
    assert all(first == pytest.approx(LIMIT, rel=1e-3) for first, _ in module.clipped)
    assert all(second > 2 * LIMIT for _, second in module.clipped)


def test_parameter_groups_are_clipped_by_their_own_values() -> None:
    limits = (0.01, 0.02)

    class Groups(Base):
        def configure_optimizers(self) -> Any:
            return torch.optim.SGD([{"params": list(self.net[index].parameters())} for index in (0, 3)], lr=0.1)

        def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            for group, limit in zip(optimizer.param_groups, limits, strict=True):
                nn.utils.clip_grad_norm_(group["params"], limit)

        def on_train_batch_end(self, *args: Any) -> None:
            norms = [norm_of(group["params"]) for group in self.optimizers().param_groups]
            assert norms == pytest.approx(limits, rel=1e-3)

    assert fit(Groups()).global_step == 6


@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_norm_is_the_global_2_norm_and_value_is_element_wise(algorithm: str) -> None:
    class Watching(Base):
        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.before = [p.grad.clone() for p in self.parameters()]

        def on_train_batch_end(self, *args: Any) -> None:
            total = math.sqrt(sum(float(item.pow(2).sum()) for item in self.before))
            for old, parameter in zip(self.before, self.parameters(), strict=True):
                wanted = old.clamp(-LIMIT, LIMIT) if algorithm == "value" else old * min(1.0, LIMIT / (total + 1e-6))
                assert torch.allclose(parameter.grad, wanted, rtol=1e-4, atol=0)

    fit(seeded(Watching), gradient_clip_val=LIMIT, gradient_clip_algorithm=algorithm)


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-true", "bf16-mixed", "16-mixed"])
def test_hooks_come_after_backward_once_per_batch_and_once_per_step(precision: str) -> None:
    calls: list[str] = []

    class Recording(Base):
        def on_after_backward(self) -> None:
            calls.append("backward")
            assert all(p.grad is not None for p in self.parameters())

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            calls.append("step")
            assert all(p.grad is not None for p in self.parameters())

        def configure_gradient_clipping(self, *args: Any, **kwargs: Any) -> None:
            calls.append("clip")
            super().configure_gradient_clipping(*args, **kwargs)

    fit(Recording(), precision=precision, accumulate_grad_batches=3, gradient_clip_val=1.0)
    assert calls == ["backward", "backward", "backward", "step", "clip"] * 2


def test_everything_up_to_clipping_happens_within_the_optimizers_step() -> None:
    calls: list[str] = []

    class Sgd(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            calls.append("step begins")
            result = super().step(closure)
            calls.append("step ends")
            return result

    class Ordered(Base):
        def configure_optimizers(self) -> Any:
            return Sgd(self.parameters(), lr=0.1)

        def configure_gradient_clipping(self, *args: Any, **kwargs: Any) -> None:
            calls.append("clip")

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            calls.append("training_step")
            return super().training_step(batch, batch_idx)

    hooks = ["on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward"]
    hooks += ["on_before_optimizer_step", "on_train_batch_end"]
    for name in hooks:
        setattr(Ordered, name, lambda self, *args, _name=name: calls.append(_name))
    fit(Ordered(), limit_train_batches=1, gradient_clip_val=1.0)
    assert calls == [
        "on_train_batch_start",
        "step begins",
        "training_step",
        "on_before_zero_grad",
        "on_before_backward",
        "on_after_backward",
        "on_before_optimizer_step",
        "clip",
        "step ends",
        "on_train_batch_end",
    ]


@pytest.mark.parametrize("algorithm", ["norm", "value"])
@pytest.mark.parametrize("callbacks", [[], [GradientMonitor]])
def test_gradients_that_are_not_finite_can_be_an_error(algorithm: str, callbacks: list[Any]) -> None:
    class Strict(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            return loss * math.nan if batch_idx == 2 else loss

        def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self.kept = [p.detach().clone() for p in self.parameters()]
            self.clip_gradients(optimizer, 1.0, algorithm, error_if_nonfinite=True)

    module = Strict()
    with pytest.raises(RuntimeError, match="total norm of the gradients is nan"):
        fit(module, callbacks=[kind() for kind in callbacks])
    assert all(torch.equal(old, new) for old, new in zip(module.kept, module.parameters(), strict=True))
