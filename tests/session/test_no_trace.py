"""A watched run goes on as if nobody had watched, replays included: weights, buffers, random states, lists, stdout."""

from __future__ import annotations

import contextlib
import io
import random
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from tests.session.test_program_shapes import DATA, MODEL, SHAPES
from tests.session.watching import PRELUDE, Watched, same_state, watch
from unstuck.session import SessionOptions


def plain(program: str, folder: Path) -> tuple[dict[str, Any], str]:
    """The same program without a session."""
    module = ModuleType("__main__")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(PRELUDE + program, str(folder / "plain.py"), "exec"), module.__dict__)
    return module.__dict__, output.getvalue()


def everything(namespace: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors (with gradients and optimiser state) and plain values of a program's namespace, by name."""
    tensors: dict[str, torch.Tensor] = {}
    values: dict[str, Any] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            tensors[name] = value.detach().clone()
            if value.is_leaf and value.grad is not None:
                tensors[f"{name}.grad"] = value.grad.clone()
        elif isinstance(value, torch.nn.Module):
            for key, item in (*value.named_parameters(), *value.named_buffers()):
                add(f"{name}.{key}", item)
        elif isinstance(value, torch.optim.Optimizer):
            for index, entry in enumerate(value.state.values()):
                for key, item in entry.items():
                    add(f"{name}.{index}.{key}", item)
        elif isinstance(value, torch.Generator):
            tensors[name] = value.get_state()
        elif isinstance(value, (int, float, str, list)):
            values[name] = repr(value)
        elif type(value).__module__ == "__main__":
            for key, item in vars(value).items():
                add(f"{name}.{key}", item)

    for name, value in namespace.items():
        if not name.startswith("__"):
            add(name, value)
    return tensors, values


def random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[union-attr]


def watched_as_plain(shape: str, data: str, folder: Path) -> Watched:
    """A watched run of a program of some shape, after which everything is as after a plain run."""
    program = MODEL + data + textwrap.dedent(SHAPES[shape]).replace("\nmain()", "\nresult = main()")
    random.seed(1)
    np.random.seed(1)
    expected, printed = plain(program, folder)
    states = random_states()
    random.seed(1)
    np.random.seed(1)
    run = watch(program, folder, SessionOptions(on_nonfinite="continue"))
    assert random_states() == states
    assert run.output == printed
    tensors, values = everything(expected)
    watched_tensors, watched_values = everything(run.namespace)
    assert watched_values == values
    assert watched_tensors.keys() == tensors.keys()
    different = [name for name, tensor in tensors.items() if not same_state(tensor, watched_tensors[name])]
    assert different == []
    return run


@pytest.mark.parametrize("shape", SHAPES)
def test_a_watched_run_is_the_plain_run(shape: str, tmp_path: Path) -> None:
    run = watched_as_plain(shape, DATA, tmp_path)
    assert run.verdict.findings  # the replay did run


def test_nothing_of_ours_is_left_in_torch(tmp_path: Path) -> None:
    from torch.nn.modules import module as module_hooks
    from torch.optim import optimizer as optimizer_hooks
    from torch.utils.data import dataloader

    owners = (
        torch.Tensor, torch.autograd, torch.optim.Optimizer, torch.nn.Module, torch.nn.utils, torch,
        torch.nn.utils.clip_grad, torch.amp.GradScaler, torch.optim.lr_scheduler.LRScheduler,
        dataloader.DataLoader, dataloader._BaseDataLoaderIter,
    )  # fmt: skip
    before = [dict(vars(owner)) for owner in owners]
    watch(MODEL + DATA + textwrap.dedent(SHAPES["module level"]), tmp_path)
    for owner, attributes in zip(owners, before, strict=True):
        after = dict(vars(owner))
        changed = {name for name in after if after[name] is not attributes.get(name)} | (
            attributes.keys() - after.keys()
        )
        assert not changed - {"__annotations__"}, owner
    assert not module_hooks._global_forward_pre_hooks
    assert not optimizer_hooks._global_optimizer_pre_hooks and not optimizer_hooks._global_optimizer_post_hooks


def test_what_the_program_drops_is_freed(tmp_path: Path) -> None:
    run = watch(
        """
        import gc, weakref
        dropped = []
        for fold in range(3):
            model = nn.Linear(3, 1); opt = torch.optim.Adam(model.parameters(), lr=0.01)
            for step in range(4):
                loss = model(torch.randn(8, 3)).pow(2).mean()
                opt.zero_grad(); loss.backward(); opt.step()
            dropped.append((weakref.ref(model), weakref.ref(opt), weakref.ref(model.weight)))
            del model, opt, loss
            gc.collect()
        alive = [ref() is not None for refs in dropped for ref in refs]
        """,
        tmp_path,
    )
    assert run.namespace["alive"] == [False] * 9
