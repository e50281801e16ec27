"""What a model is made of: layers, parameters, shapes and operations, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.utils.flop_counter import FlopCounterMode

from unstuck.messages import rank_zero_warn
from unstuck.trainer.data.seed import isolate_rng
from unstuck.trainer.data.transfer import move_data_to_device

__all__ = [
    "LayerSummary",
    "ModelSummary",
    "format_summary_table",
    "get_formatted_model_size",
    "get_human_readable_count",
    "parse_batch_shape",
    "summarize",
]

Columns = list[tuple[str, list[str]]]

UNKNOWN_SIZE = "?"
NOT_APPLICABLE = "n/a"
LEFTOVER_PARAMS_NAME = "other params"
UNITS = (" ", "K", "M", "B", "T")


class LayerSummary:
    """One module of a model. The shapes are known after a forward pass.

    Args:
        module: the module.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._in_size: str | list[Any] | None = None
        self._out_size: str | list[Any] | None = None
        self._hook: Any = None
        if not isinstance(module, torch.jit.ScriptModule):  # it takes no hooks
            self._hook = module.register_forward_hook(self._look, with_kwargs=True)

    def _look(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        inputs = (*args, *kwargs.values())
        self._in_size = parse_batch_shape(inputs[0] if len(inputs) == 1 else inputs)
        self._out_size = parse_batch_shape(output)
        self.detach_hook()

    def detach_hook(self) -> None:
        """Look at no forward pass any more. The first one that was seen does it, too."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    @property
    def in_size(self) -> str | list[Any]:
        """Shape of the input, ``"?"`` while unknown."""
        return self._in_size or UNKNOWN_SIZE

    @property
    def out_size(self) -> str | list[Any]:
        """Shape of the output, ``"?"`` while unknown."""
        return self._out_size or UNKNOWN_SIZE

    @property
    def layer_type(self) -> str:
        """Name of the module's class."""
        return type(self._module).__name__

    @property
    def num_parameters(self) -> int:
        """Elements of the module's parameters."""
        return _count(self._module.parameters())

    @property
    def training(self) -> bool:
        """Whether the module is in train mode."""
        return self._module.training


class ModelSummary:
    """The modules of a model down to a depth; as text, a table of them.

    Where the model has an ``example_input_array`` (a tensor, or a tuple or dictionary of arguments), it is called with
    it once, in eval mode, to learn shapes and to count floating-point operations. A call that fails costs the table its
    shapes, and nothing else.

    Args:
        model: a LightningModule.
        max_depth: levels of modules to show: 1 for the model's own attributes, -1 for all, 0 for none.

    Raises:
        ValueError: another ``max_depth``.
    """

    def __init__(self, model: Any, max_depth: int = 1) -> None:
        if isinstance(max_depth, bool) or not isinstance(max_depth, int) or max_depth < -1:
            raise ValueError(f"`max_depth` should be -1 (all), 0 (none) or the number of levels, got {max_depth!r}.")
        self._model = model
        self._max_depth = max_depth
        self._total_flops = 0
        self._flop_counts: dict[str, dict[Any, int]] = {}
        self._layer_summary = self.summarize()

    @property
    def named_modules(self) -> list[tuple[str, nn.Module]]:
        """The modules that are looked at, by their dotted names."""
        if self._max_depth == 0:
            return []
        if self._max_depth == 1:
            return list(self._model.named_children())
        return list(self._model.named_modules())[1:]

    @property
    def layer_names(self) -> list[str]:
        """Dotted names of the modules."""
        return list(self._layer_summary)

    @property
    def layer_types(self) -> list[str]:
        """Their classes."""
        return [layer.layer_type for layer in self._layer_summary.values()]

    @property
    def in_sizes(self) -> list[Any]:
        """Shapes of their inputs."""
        return [layer.in_size for layer in self._layer_summary.values()]

    @property
    def out_sizes(self) -> list[Any]:
        """Shapes of their outputs."""
        return [layer.out_size for layer in self._layer_summary.values()]

    @property
    def param_nums(self) -> list[int]:
        """Elements of their parameters."""
        return [layer.num_parameters for layer in self._layer_summary.values()]

    @property
    def training_modes(self) -> list[bool]:
        """Whether they are in train mode."""
        return [layer.training for layer in self._layer_summary.values()]

    @property
    def total_training_modes(self) -> dict[str, int]:
        """How many modules, at any depth, are in mode ``"train"`` and ``"eval"``."""
        modes = [module.training for module in self._model.modules()][1:]
        return {"train": modes.count(True), "eval": modes.count(False)}

    @property
    def total_parameters(self) -> int:
        """Elements of all parameters."""
        return _count(self._model.parameters())

    @property
    def trainable_parameters(self) -> int:
        """Elements of the parameters that require gradients."""
        return _count(item for item in self._model.parameters() if item.requires_grad)

    @property
    def total_layer_params(self) -> int:
        """Elements of the parameters of the modules that are shown, as they add up."""
        return sum(self.param_nums)

    @property
    def model_size(self) -> float:
        """Size of all parameters in megabytes."""
        return sum(item.numel() * item.element_size() for item in _known(self._model.parameters())) * 1e-6

    @property
    def total_flops(self) -> int:
        """Floating-point operations of the example's forward pass, 0 without an example."""
        return self._total_flops

    @property
    def flop_counts(self) -> dict[str, dict[Any, int]]:
        """The same for each module that is shown, by operation."""
        root = type(self._model).__name__
        return {name: self._flop_counts.get(f"{root}.{name}", {}) for name in self.layer_names}

    def summarize(self) -> dict[str, LayerSummary]:
        """Look at the modules, with a forward pass if there is an example, and return those that are shown."""
        layers = {name: LayerSummary(module) for name, module in self.named_modules}
        try:
            if self._model.example_input_array is not None:
                self._run_example()
        finally:
            for layer in layers.values():
                layer.detach_hook()
        if self._max_depth < 1:
            return layers
        return {name: layer for name, layer in layers.items() if name.count(".") < self._max_depth}

    def _run_example(self) -> None:
        """Call the model on its example. A summary stops no training, so what goes wrong is only told."""
        modes = [(module, module.training) for module in self._model.modules()]
        counter = FlopCounterMode(display=False)
        try:
            with isolate_rng():
                self._model.eval()
                try:
                    self._call_model(counter)
                except Exception:  # noqa: BLE001 - some tensors can't be counted but computed
                    self._call_model(nullcontext())
                else:
                    self._total_flops = counter.get_total_flops()
                    self._flop_counts = counter.get_flop_counts()
        except Exception as error:  # noqa: BLE001 - see above
            rank_zero_warn(
                "The model summary shows no shapes: calling the model on its `example_input_array` raised"
                f" {type(error).__name__}: {error}"
            )
        finally:
            for module, training in modes:
                module.training = training

    def _call_model(self, context: AbstractContextManager[Any]) -> None:
        model, trainer = self._model, self._model._trainer
        example = model.on_before_batch_transfer(model.example_input_array, 0)
        call = model
        if trainer is not None:
            precision = trainer.precision_plugin
            example = precision.convert_batch(example)
            call = precision.wrap_step(model)
        example = model.transfer_batch_to_device(example, model.device, 0)
        example = model.on_after_batch_transfer(move_data_to_device(example, model.device), 0)
        with torch.no_grad(), context:
            if isinstance(example, dict):
                call(**example)
            elif isinstance(example, (list, tuple)):
                call(*example)
            else:
                call(example)

    def _get_summary_data(self) -> Columns:
        """The columns of the table: header and cells."""
        flops = [sum(counts.values()) for counts in self.flop_counts.values()]
        columns: Columns = [
            (" ", [str(index) for index in range(len(self._layer_summary))]),
            ("Name", self.layer_names),
            ("Type", self.layer_types),
            ("Params", [get_human_readable_count(number) for number in self.param_nums]),
            ("Mode", ["train" if training else "eval" for training in self.training_modes]),
            ("FLOPs", [get_human_readable_count(number) for number in flops]),
        ]
        if self._model.example_input_array is not None:
            columns.append(("In sizes", list(map(str, self.in_sizes))))
            columns.append(("Out sizes", list(map(str, self.out_sizes))))
        leftover = self.total_parameters - self.total_layer_params
        if leftover > 0:
            special = {" ": " ", "Name": LEFTOVER_PARAMS_NAME, "Params": get_human_readable_count(leftover)}
            for header, cells in columns:
                cells.append(special.get(header, NOT_APPLICABLE))
        return columns

    def __str__(self) -> str:
        return format_summary_table(
            self.total_parameters,
            self.trainable_parameters,
            self.model_size,
            self.total_training_modes,
            self.total_flops,
            *self._get_summary_data(),
        )

    __repr__ = __str__


def summarize(lightning_module: Any, max_depth: int = 1) -> ModelSummary:
    """Return the summary of a LightningModule; see :class:`ModelSummary`."""
    return ModelSummary(lightning_module, max_depth=max_depth)


def parse_batch_shape(batch: Any) -> str | list[Any]:
    """Return the shapes in a tensor, or in lists and tuples of tensors; ``"?"`` for anything else."""
    if hasattr(batch, "shape"):
        return list(batch.shape)
    if isinstance(batch, (list, tuple)):
        return [parse_batch_shape(item) for item in batch]
    return UNKNOWN_SIZE


def format_summary_table(
    total_parameters: int,
    trainable_parameters: int,
    model_size: float,
    total_training_modes: dict[str, int],
    total_flops: int,
    *columns: tuple[str, list[str]],
) -> str:
    """Return a summary as text: a row for each module and what they add up to.

    Args:
        total_parameters: elements of all parameters.
        trainable_parameters: of those that require gradients.
        model_size: in megabytes.
        total_training_modes: modules in mode ``"train"`` and ``"eval"``.
        total_flops: floating-point operations.
        columns: header and cells of each.
    """
    widths = [max(map(len, (header, *cells))) for header, cells in columns]
    rule = "-" * (sum(widths) + 3 * (len(columns) + 1))
    rows = zip(*(cells for _, cells in columns), strict=True)
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in ([header for header, _ in columns], *rows)
    ]
    totals = [
        (get_human_readable_count(trainable_parameters), "Trainable params"),
        (get_human_readable_count(total_parameters - trainable_parameters), "Non-trainable params"),
        (get_human_readable_count(total_parameters), "Total params"),
        (get_formatted_model_size(model_size), "Total estimated model params size (MB)"),
        (str(total_training_modes["train"]), "Modules in train mode"),
        (str(total_training_modes["eval"]), "Modules in eval mode"),
        (get_human_readable_count(total_flops), "Total Flops"),
    ]
    return "\n".join([lines[0], rule, *lines[1:], rule, *(f"{number:<10}{what}" for number, what in totals)])


def get_formatted_model_size(total_model_size: float) -> str:
    """Return megabytes with three decimals."""
    return f"{total_model_size:,.3f}"


def get_human_readable_count(number: int) -> str:
    """Return a number with K, M, B or T for thousands and so on: ``1.2 K``, ``132 K``, ``5,000 T``."""
    unit = min((len(str(int(number))) - 1) // 3, len(UNITS) - 1)
    scaled = number / 1000**unit
    return f"{int(scaled):,d} {UNITS[unit]}" if unit == 0 or scaled >= 100 else f"{scaled:,.1f} {UNITS[unit]}"


def _known(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Those that have a shape already."""
    found = list(parameters)
    known = [item for item in found if not isinstance(item, UninitializedParameter)]
    if len(known) < len(found):
        rank_zero_warn(
            "The model summary counts no parameters that get their shape in the first forward pass. Set the module's"
            " `example_input_array` to have them counted.",
            stacklevel=4,
        )
    return known


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(item.numel() for item in _known(parameters))
