"""Taking a trained model elsewhere: ONNX and TorchScript."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unstuck.loggers.files import filesystem_of

__all__ = ["ExportMixin", "is_exporting"]


class ExportMixin:
    """Adds :meth:`to_onnx` and :meth:`to_torchscript` to a module. Only ``forward`` is exported."""

    # What these answer belongs to the training: TorchScript leaves them out.
    __jit_unused_properties__ = (
        "automatic_optimization",
        "current_epoch",
        "device",
        "dtype",
        "example_input_array",
        "global_rank",
        "global_step",
        "hparams",
        "hparams_initial",
        "local_rank",
        "logger",
        "loggers",
        "on_gpu",
        "strict_loading",
        "trainer",
    )

    @torch.no_grad()
    def to_onnx(self, file_path: str | Path | BytesIO | None = None, input_sample: Any = None, **kwargs: Any) -> Any:
        """Exports the model to ONNX.

        Args:
            file_path: where to; None for no file.
            input_sample: a tensor or a tuple of arguments to trace with; None for ``example_input_array``.
            kwargs: for :func:`torch.onnx.export`.

        Returns:
            What :func:`torch.onnx.export` returns.

        Raises:
            ModuleNotFoundError: a library that it needs isn't installed.
            ValueError: there is no input to trace with.
        """
        missing = [library for library in ("onnx", "onnxscript") if importlib.util.find_spec(library) is None]
        if kwargs.get("dynamo") is False and "onnx" not in missing:
            missing = []
        if missing:
            raise ModuleNotFoundError(
                f"`{type(self).__name__}.to_onnx` needs the library {' and '.join(missing)}:"
                " `pip install unstuck[onnx]`."
            )
        sample = self._prepare_example(input_sample, "`to_onnx` needs an `input_sample`, or")
        path = os.fspath(file_path) if isinstance(file_path, Path) else file_path
        with _in_eval_mode(self):
            arguments = sample if isinstance(sample, tuple) else (sample,)
            return torch.onnx.export(self, arguments, path, **kwargs)  # type: ignore[arg-type] # it is a module

    @torch.no_grad()
    def to_torchscript(
        self,
        file_path: str | Path | None = None,
        method: str | None = "script",
        example_inputs: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Compiles the model to TorchScript, in eval mode.

        Args:
            file_path: where to save it, also a URL that fsspec understands; None for no file.
            method: ``"script"`` or ``"trace"``.
            example_inputs: a tensor or a tuple of arguments to trace with; None for ``example_input_array``.
            kwargs: for :func:`torch.jit.script` or :func:`torch.jit.trace`.

        Returns:
            The script.

        Raises:
            ValueError: an unknown method, or no input to trace with.
        """
        if method not in ("script", "trace"):
            raise ValueError(f"`to_torchscript(method={method!r})` should be 'script' or 'trace'.")
        with _in_eval_mode(self), _without_trainer(self):
            script: Any
            if method == "script":
                script = torch.jit.script(self, **kwargs)
            else:
                inputs = self._prepare_example(
                    example_inputs, "`to_torchscript(method='trace')` needs `example_inputs`, or"
                )
                script = torch.jit.trace(self, inputs, **kwargs)
        if file_path is not None:
            filesystem, inner = filesystem_of(os.fspath(file_path))
            with filesystem.open(inner, "wb") as file:
                torch.jit.save(script, file)
        return script

    def _prepare_example(self, given: Any, problem: str) -> Any:
        """An example on the device, as the Trainer would bring a batch there.

        Raises:
            ValueError: there is none.
        """
        module: Any = self
        example = module.example_input_array if given is None else given
        if example is None:
            raise ValueError(f"{problem} `{type(self).__name__}.example_input_array`.")
        example = module.on_before_batch_transfer(example, 0)
        example = module.transfer_batch_to_device(example, module.device, 0)
        return module.on_after_batch_transfer(example, 0)


@contextmanager
def _in_eval_mode(module: Any) -> Iterator[None]:
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for child, training in modes:
            child.training = training


@contextmanager
def _without_trainer(module: Any) -> Iterator[None]:
    """Inside, the modules know no Trainer, which no script can hold."""
    held = [(child, child.__dict__["_trainer"]) for child in module.modules() if "_trainer" in child.__dict__]
    logbooks = [(child, child.__dict__.get("_logbook")) for child, _ in held]
    for child, _ in held:
        child.__dict__.update(_trainer=None, _logbook=None, _is_exporting=True)
    try:
        yield
    finally:
        for (child, trainer), (_, logbook) in zip(held, logbooks, strict=True):
            child.__dict__.update(_trainer=trainer, _logbook=logbook)
            del child.__dict__["_is_exporting"]


def is_exporting(module: nn.Module) -> bool:
    """Whether a module is being compiled to TorchScript."""
    return "_is_exporting" in module.__dict__
