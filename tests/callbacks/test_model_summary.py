"""The model's summary: as a table, and when a fit begins."""

import io
import logging
import warnings
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.utilities.model_summary import ModelSummary as Reference
from lightning.pytorch.utilities.model_summary import get_human_readable_count as reference_count
from rich.console import Console
from torch import nn

import unstuck
from tests.trainer.side_by_side import OURS, THEIRS, Library, base_module, compare, run
from unstuck.callbacks import ModelSummary, RichModelSummary
from unstuck.callbacks import model_summary as summaries
from unstuck.errors import MisconfigurationException
from unstuck.utilities.model_summary import ModelSummary as Summary
from unstuck.utilities.model_summary import get_human_readable_count, summarize

pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


def block() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())


def make(library: Library, example: Any = None) -> Any:
    class Net(library.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(block(), nn.Flatten(), nn.Dropout(0.5))
            self.head = nn.Linear(8 * 36, 10)
            self.scale = nn.Parameter(torch.ones(3))
            self.head.bias.requires_grad = False
            self.body[2].eval()
            self.example_input_array = example

        def forward(self, x: Any, factor: Any = 1.0) -> Any:
            return self.head(self.body(x)) * factor

    torch.manual_seed(0)
    return Net()


EXAMPLES: dict[str, Any] = {
    "none": None,
    "tensor": torch.ones(2, 3, 8, 8),
    "tuple": (torch.ones(2, 3, 8, 8), torch.ones(1)),
    "dict": {"x": torch.ones(2, 3, 8, 8), "factor": 2.0},
}


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("max_depth", [-1, 0, 1, 2, 3])
def test_table_is_lightnings(example: str, max_depth: int) -> None:
    own = Summary(make(OURS, EXAMPLES[example]), max_depth)
    reference = Reference(make(THEIRS, EXAMPLES[example]), max_depth)
    assert str(own) == str(reference) == repr(own)
    for name in (
        "layer_names",
        "layer_types",
        "in_sizes",
        "out_sizes",
        "param_nums",
        "training_modes",
        "total_training_modes",
        "total_parameters",
        "trainable_parameters",
        "total_layer_params",
        "total_flops",
        "flop_counts",
    ):
        assert getattr(own, name) == getattr(reference, name), name
    assert own.model_size == pytest.approx(reference.model_size)
    assert [name for name, _ in own.named_modules] == [name for name, _ in reference.named_modules]


def test_flops_are_those_of_the_matrix_product() -> None:
    class Net(unstuck.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(256, 512)
            self.example_input_array = torch.zeros(10, 256)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    assert summarize(Net()).total_flops == 2 * 10 * 256 * 512


@pytest.mark.parametrize("number", [0, 1, 123, 999, 1000, 1234, 99_949, 132_096, 999_999, 2e6, 3e9, 4e14, 5e15])
def test_counts(number: int) -> None:
    assert get_human_readable_count(number) == reference_count(number)


@pytest.mark.parametrize("max_depth", [-2, 1.5, True, "all"])
def test_bad_depth(max_depth: Any) -> None:
    with pytest.raises(ValueError, match="max_depth"):
        Summary(make(OURS), max_depth)


def test_modes_hooks_and_random_state_are_left_alone() -> None:
    module = make(OURS, torch.ones(2, 3, 8, 8))
    modes = [child.training for child in module.modules()]
    statistics = module.body[0][1].running_mean.clone()
    state = torch.get_rng_state()
    summarize(module, -1)
    assert [child.training for child in module.modules()] == modes
    assert torch.equal(module.body[0][1].running_mean, statistics)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(child._forward_hooks for child in module.modules())


def test_training_is_the_same_with_and_without() -> None:
    class Drawing(base_module(OURS)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return self.net(x) + torch.rand(1)

    def make_drawing(library: Library) -> Any:
        module = Drawing()
        module.example_input_array = torch.ones(2, 8)
        return module

    with_summary = run(OURS, make_drawing, max_epochs=1, enable_model_summary=True)
    without = run(OURS, make_drawing, max_epochs=1)
    assert all(torch.equal(a, b) for a, b in zip(with_summary.losses, without.losses, strict=True))
    compare(max_epochs=1, enable_model_summary=True)


def failing(library: Library, error: str = "cannot") -> Any:
    class Failing(base_module(library)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            raise RuntimeError(error)

    module = Failing()
    module.example_input_array = torch.ones(2, 8)
    return module


def test_a_summary_stops_no_training() -> None:
    with pytest.warns(UserWarning, match="no shapes: .* RuntimeError: cannot"):
        outcome = run(OURS, failing, max_epochs=1, enable_model_summary=True)
    assert outcome.steps == 6


def test_no_forward_means_no_shapes() -> None:
    module = base_module(OURS)()
    module.example_input_array = torch.ones(2, 8)
    with pytest.warns(UserWarning, match="no shapes"):
        text = str(summarize(module))
    assert "Sequential" in text
    assert "?" in text


def test_jagged_input_has_a_summary() -> None:
    class Ragged(base_module(OURS)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return self.net[0](x)

    module = Ragged()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's: such tensors are a prototype
        module.example_input_array = torch.nested.nested_tensor(
            [torch.ones(2, 8), torch.ones(3, 8)], layout=torch.jagged
        )
        text = str(summarize(module, 2))
    assert "net.0 | Linear" in text


def test_lazy_parameters_are_told() -> None:
    class Lazy(unstuck.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LazyLinear(3)

    with pytest.warns(UserWarning, match="no parameters that get their shape"):
        assert summarize(Lazy()).total_parameters == 0


def test_size_is_that_of_the_precision() -> None:
    module = make(OURS)
    single = summarize(module).model_size
    assert summarize(module.double()).model_size == 2 * single
    assert summarize(module.to(torch.bfloat16)).model_size == single / 2


def test_the_plain_callback_logs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="unstuck"):
        run(OURS, max_epochs=1, enable_model_summary=True, callbacks=[ModelSummary(max_depth=2)])
    table = next(line for line in caplog.messages if "Total params" in line)
    assert "net.0 | Linear" in table
    with caplog.at_level(logging.INFO, logger="unstuck"):
        caplog.clear()
        run(OURS, max_epochs=1, enable_model_summary=True, callbacks=[ModelSummary(max_depth=0)])
    assert not any("Total params" in line for line in caplog.messages)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_default_draws_a_table(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    terminal = Console(file=text, force_terminal=is_terminal, width=200)
    monkeypatch.setattr(summaries, "console", lambda: terminal)

    def marked(library: Library) -> Any:
        module = base_module(library)()
        module.net = nn.ModuleDict({"[red]x": module.net})
        module.training_step = lambda batch, batch_idx: module.net["[red]x"](batch[0]).sum()
        return module

    run(OURS, marked, max_epochs=1, enable_model_summary=True, callbacks=[RichModelSummary(2, header_style="bold")])
    assert "[red]x" in text.getvalue()
    assert "161" in text.getvalue()
    assert ("┃" in text.getvalue()) == is_terminal
    assert "Modules in eval mode" in text.getvalue()


def test_which_summary_the_trainer_has() -> None:
    def summary_of(**keywords: Any) -> list[Any]:
        trainer = unstuck.Trainer(logger=False, accelerator="cpu", enable_checkpointing=False, max_epochs=1, **keywords)
        return [callback for callback in trainer.callbacks if isinstance(callback, ModelSummary)]

    assert [type(callback) for callback in summary_of()] == [RichModelSummary]
    assert summary_of(enable_model_summary=False) == []
    assert summary_of(fast_dev_run=True)
    own = ModelSummary(3)
    assert summary_of(callbacks=[own]) == [own]
    theirs = pl.callbacks.ModelSummary(2)
    assert summary_of(callbacks=[theirs]) == []
    with pytest.raises(MisconfigurationException, match="enable_model_summary"):
        summary_of(callbacks=[own], enable_model_summary=False)
    trainer = unstuck.Trainer(barebones=True, accelerator="cpu", max_epochs=1)
    assert not any(isinstance(callback, ModelSummary) for callback in trainer.callbacks)
