"""The step of a Trainer's incident: the module is made from its class and hyper-parameters, and its method called."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import math
import os
import runpy
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from unstuck.diagnosis import judge
from unstuck.errors import ScriptError
from unstuck.findings import Finding
from unstuck.measure import rng
from unstuck.record.origin import Origin
from unstuck.record.recording import Recording
from unstuck.trainer.precision import Precision, select_precision
from unstuck.trainer.trainer import Trainer
from unstuck.trials.incident_folder import SavedIncident
from unstuck.trials.tracing import OpTrace

__all__ = ["Repeated", "replay_module"]

_LEFT = (
    "not restored: the Trainer's position, logged values, the optimiser's state, and what hooks changed in the module",
)


@dataclass(frozen=True)
class Repeated:
    """What came of it: ``findings``, none if the step was finite; what was ``left`` out, one phrase each."""

    findings: tuple[Finding, ...]
    left: tuple[str, ...]


class _FitReached(BaseException):
    """Ends the program at its first fit; ``module`` is what would be trained."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module


def replay_module(saved: SavedIncident) -> Repeated:
    """Run the step of an incident again under the tracer.

    Args:
        saved: with :attr:`SavedIncident.rebuild`.

    Raises:
        ScriptError: the module can't be made, or its method raises.
    """
    rebuild = saved.rebuild
    assert rebuild is not None
    left = [*_LEFT, *(f"not saved: {phrase}" for phrase in saved.left_out)]
    batch = next((value for name, value in reversed(saved.batches.items()) if name.startswith("draw ")), None)
    if batch is None:
        raise ScriptError("the incident holds no batch: it was noticed after the step was over")
    module = _make(saved, left)
    precision = select_precision(rebuild["precision"], "cpu")
    module = precision.convert_module(module)
    _load(module, saved, left)
    if saved.random_state is None:
        left.append("not restored: the random state, which was not saved")
    arguments = (batch, *rebuild["plain_arguments"])
    with warnings.catch_warnings(), _silent_log():
        warnings.simplefilter("ignore")
        owner: Any = module
        owner.trainer = Trainer(barebones=True, accelerator="cpu", max_epochs=1)
        origin, loss = _run(module, precision, rebuild["method"], arguments, saved)
    if origin is None:
        return Repeated((), (*left, f"the step was finite when it was run again: its loss is {loss:.6g}"))
    only = Recording()
    only.incidents.append(replace(saved.record, origin=origin, replayed=True, reasons=(), folder=str(saved.folder)))
    if not _same(loss, saved.record.loss):
        left.append(f"the loss is {loss:.9g} when the step is run again, it was {saved.record.loss}")
    return Repeated(tuple(judge(only)), tuple(left))


def _same(loss: float, seen: float | None) -> bool:
    return seen is None or loss == seen or (math.isnan(loss) and math.isnan(seen))


def _run(
    module: Any, precision: Precision, method: str, arguments: tuple[Any, ...], saved: SavedIncident
) -> tuple[Origin | None, float]:
    """(where the value came from, the loss) of one call of the module's method."""
    step = precision.wrap_step(getattr(module, method))
    module.train(method == "training_step")
    with contextlib.suppress(AttributeError):
        module._current_fx_name = method
    if saved.random_state is not None:
        rng.restore(saved.random_state._replace(others=()))
    trace = OpTrace(models={"model": module}, batch=arguments[0], stop=sys._getframe())
    differentiates = method == "training_step" and saved.record.kind != "loss"
    with torch.set_grad_enabled(method == "training_step"), trace:
        try:
            output = step(*arguments)
        except Exception as error:
            raise ScriptError(f"{type(module).__name__}.{method} raised {type(error).__name__}: {error}") from error
        loss = output.get("loss") if isinstance(output, Mapping) else output
        if not isinstance(loss, torch.Tensor):
            raise ScriptError(f"{type(module).__name__}.{method} returned no loss that could be looked at")
        if differentiates:
            loss.backward()
    origin = trace.origin_of(loss)
    if origin is None and differentiates:
        origin = trace.origin_of_gradient(*module.parameters())
    return origin, float(loss.detach().item())


def _load(module: torch.nn.Module, saved: SavedIncident, left: list[str]) -> None:
    state = next(iter(saved.models.values()), None)
    if state is None:
        left.append("not restored: the weights, which were not saved")
        return
    try:
        missing, unexpected = module.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise ScriptError(f"the saved weights don't fit the module: {' '.join(str(error).split())[:300]}") from error
    left += [f"not restored: {name}" for name in (*missing, *unexpected)]


def _make(saved: SavedIncident, left: list[str]) -> Any:
    """The module from its class and hyper-parameters; or, where these don't tell, the one that the program fits."""
    rebuild = saved.rebuild
    assert rebuild is not None
    with _import_path(saved), _stopping_at_fit():
        try:
            kind = _class(rebuild)
        except _FitReached as reached:
            if type(reached.module).__qualname__ == rebuild["class"]:
                return reached.module
            raise ScriptError(f"the program fits a {type(reached.module).__name__} first") from None
        if kind is not None:
            try:
                return kind(**saved.hyper_parameters)
            except Exception as error:  # noqa: BLE001 - a constructor may raise anything
                reason = f"{type(error).__name__}: {str(error)[:200]}"
        else:
            reason = "the class is defined inside of a function"
        left.append(f"{rebuild['class']} couldn't be made from its hyper-parameters ({reason}): the program made it")
        return _made_by_program(rebuild, reason)


def _class(rebuild: Mapping[str, Any]) -> Any:
    """The module's class; None for one that is no attribute of its file."""
    name, file = rebuild["module"], rebuild["file"]
    try:
        if name != "__main__":
            found: Any = importlib.import_module(name)
        else:
            # under another name, so that what stands under `if __name__ == "__main__"` isn't run
            spec = importlib.util.spec_from_file_location("unstuck_replayed", file)
            if spec is None or spec.loader is None:
                raise ScriptError(f"{file} can't be imported")
            found = importlib.util.module_from_spec(spec)
            sys.modules["unstuck_replayed"] = found
            spec.loader.exec_module(found)
    except (ScriptError, _FitReached):
        raise
    except BaseException as error:
        raise ScriptError(f"{file or name} raised {type(error).__name__} when it was imported: {error}") from error
    for part in rebuild["class"].split("."):
        found = getattr(found, part, None)
    return found


def _made_by_program(rebuild: Mapping[str, Any], reason: str) -> Any:
    if rebuild["module"] != "__main__":
        raise ScriptError(f"{rebuild['class']} can't be made from its hyper-parameters: {reason}")
    try:
        runpy.run_path(rebuild["file"], run_name="__main__")
    except _FitReached as reached:
        return reached.module
    except BaseException as error:
        raise ScriptError(f"{rebuild['file']} raised {type(error).__name__}: {error}") from error
    raise ScriptError(f"{rebuild['file']} fits no module")


@contextlib.contextmanager
def _import_path(saved: SavedIncident) -> Iterator[None]:
    """Imports as they were in the program: its folder comes first."""
    before = list(sys.path), list(sys.argv)
    script = saved.script
    if script is not None:
        sys.path.insert(0, os.path.dirname(script.path))
        sys.argv = [script.path, *script.arguments]
    try:
        yield
    finally:
        sys.path[:], sys.argv = before


@contextlib.contextmanager
def _silent_log() -> Iterator[None]:
    """What the Trainer of a single step has to say of itself is of no interest."""
    logger = logging.getLogger("unstuck")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextlib.contextmanager
def _stopping_at_fit() -> Iterator[None]:
    original = Trainer.fit

    def fit(trainer: Any, model: Any, *_: Any, **__: Any) -> None:
        raise _FitReached(model)

    Trainer.fit = fit  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Trainer.fit = original  # type: ignore[method-assign]
