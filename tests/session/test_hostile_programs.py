"""Programs that make it hard to run a step again: everything after the incident is as if nothing had been run again.

Each keeps what the step touches in ``KEPT``. A watched run that goes on after the incident must end with the same
``KEPT``, random states and output as a plain one; the op is named by the replay, or the report says why not and that a
second run can tell.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import random
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from tests.session.watching import Watched, watch
from unstuck.session import SessionOptions

START = """
import atexit, collections, functools, io, itertools, logging, os, pathlib, queue, random, sys, threading
import numpy as np
from torch.utils.data import DataLoader, TensorDataset
np.random.seed(0); random.seed(0)
X, Y, K = torch.randn(60, 4), torch.rand(60, 1) + 1, torch.zeros(60, 1)
K[35] = Y[35]
loader = DataLoader(TensorDataset(X, Y, K), batch_size=10)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
KEPT = []
def criterion(pred, y, k):
    safe = torch.sqrt((pred * (y - k)).abs())  # HERE
    return (safe + pred).pow(2).mean()
def update(loss):
    opt.zero_grad(); loss.backward(); opt.step()
"""

NAMED = {
    "variables of enclosing functions": """
        def main():
            count, total = 0, 0.0
            def forward(x):
                nonlocal count
                count += 1
                return model(x)
            for x, y, k in loader:
                loss = criterion(forward(x), y, k)
                update(loss)
                total += loss.item()
            return count, total
        KEPT.append(main())
        """,
    "attributes of a class": """
        class Stats:
            calls = 0
            seen = []
        def step(x, y, k):
            pred = model(x)
            Stats.calls += 1
            Stats.seen.append(Stats.calls)
            update(criterion(pred, y, k))
        for batch in loader:
            step(*batch)
        KEPT += [Stats.calls, Stats.seen]
        """,
    "globals of another module": """
        import types
        state = types.ModuleType("state")
        state.calls, names = 0, types.SimpleNamespace(calls=0)
        os.environ["UNSTUCK_TEST_CALLS"] = "0"
        for x, y, k in loader:
            pred = model(x)
            state.calls += 1
            names.calls += 1
            os.environ["UNSTUCK_TEST_CALLS"] += "x"
            update(criterion(pred, y, k))
        KEPT += [state.calls, names.calls, os.environ["UNSTUCK_TEST_CALLS"]]
        """,
    "entries taken out of the batch": """
        loader = DataLoader([{"x": x, "y": y, "k": k} for x, y, k in zip(X, Y, K)], batch_size=10)
        for batch in loader:
            y, k = batch.pop("y"), batch.pop("k")
            update(criterion(model(batch["x"]), y, k))
        """,
    "a buffer of tensors": """
        buffer = collections.deque(maxlen=2)
        for x, y, k in loader:
            pred = model(x)
            buffer.append((x, pred.detach()))
            update(criterion(pred, y, k))
        KEPT.append([item.sum().item() for pair in buffer for item in pair])
        """,
    "arrays and bytes": """
        import array
        numbers, raw = array.array("d"), bytearray()
        for x, y, k in loader:
            pred = model(x)
            numbers.append(float(pred.detach().sum()))
            raw.append(1)
            update(criterion(pred, y, k))
        KEPT += [numbers, raw]
        """,
    "files": """
        path = pathlib.Path("log.txt")
        kept_open = open("open.txt", "w+")
        path.write_text("")
        for x, y, k in loader:
            pred = model(x)
            with open(path, "a") as file:
                file.write("line\\n")
            path.with_suffix(".last").write_text(str(len(path.read_text())))
            kept_open.write("x")
            update(criterion(pred, y, k))
        kept_open.close()
        KEPT += [path.read_text(), path.with_suffix(".last").read_text(), pathlib.Path("open.txt").read_text()]
        """,
    "logging and a stream that was kept": """
        out = sys.stdout
        for x, y, k in loader:
            pred = model(x)
            logging.getLogger("train").warning("step")
            print("step", file=out)
            out.write("step")
            update(criterion(pred, y, k))
        """,
    "a writer in another thread": """
        events, written = queue.Queue(), []
        def write():
            while (event := events.get()) is not None:
                written.append(event)
                events.task_done()
        writer = threading.Thread(target=write)
        writer.start()
        for i, (x, y, k) in enumerate(loader):
            pred = model(x)
            events.put(i)
            update(criterion(pred, y, k))
        events.join()
        events.put(None)
        writer.join()
        KEPT.append(written)
        """,
    "a backward that was imported by name": """
        from torch.autograd import backward
        for x, y, k in loader:
            loss = criterion(model(x), y, k)
            opt.zero_grad()
            backward(loss)
            opt.step()
        """,
    "backward of several losses": """
        for x, y, k in loader:
            pred = model(x)
            opt.zero_grad()
            torch.autograd.backward([pred.abs().mean(), criterion(pred, y, k)])
            opt.step()
        """,
    "a batch that is changed in place": """
        for x, y, k in loader:
            x.mul_(2).add_(0.1)
            pred = model(x)
            pred += 1.0
            update(criterion(pred, y, k))
        """,
    "a teacher that follows before the forward": """
        teacher = nn.Linear(4, 1).requires_grad_(False)
        for x, y, k in loader:
            teacher.weight.mul_(0.9).add_(0.1)
            target = teacher(x)
            pred = model(x)
            update(criterion(pred, y, k) + (pred - target).pow(2).mean())
        KEPT.append(teacher.weight)
        """,
    "a step that is mapped over the loader": """
        def step(weight, batch):
            x, y, k = batch
            loss = weight * criterion(model(x), y, k)
            update(loss)
            return loss.item()
        KEPT += list(map(functools.partial(step, 1.0), loader))
        """,
    "objects that answer to nothing": """
        class Silent:
            def __getattr__(self, name): raise RuntimeError(name)
            def __eq__(self, other): raise RuntimeError("eq")
            def __hash__(self): return 1
            def __bool__(self): raise RuntimeError("bool")
            def __len__(self): raise RuntimeError("len")
        class Mapped(dict):
            def __iter__(self): raise RuntimeError("iter")
            def items(self): raise RuntimeError("items")
        class Listed(list):
            def __iter__(self): raise RuntimeError("iter")
            def __len__(self): raise RuntimeError("len")
        class Lazy:
            read = 0
            @property
            def __dict__(self):
                Lazy.read += 1
                raise RuntimeError("dict")
        class Meta(type):
            def __getattr__(cls, name): raise RuntimeError(name)
        class Made(metaclass=Meta): pass
        things = [Silent(), Mapped(a=1), Listed([1]), Lazy(), Made(), Made, {Silent(): 1}]
        def train(thing):
            for x, y, k in loader:
                update(criterion(model(x), y, k))
        train(things[0])
        KEPT.append(Lazy.read)
        """,
    "an operator mode of the program's": """
        from torch.overrides import TorchFunctionMode
        class Passing(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                return function(*args, **(kwargs or {}))
        for x, y, k in loader:
            with Passing():
                loss = criterion(model(x), y, k)
            update(loss)
        """,
    "another thread that evaluates": """
        other, done = nn.Linear(4, 1), threading.Event()
        def evaluate():
            while not done.is_set():
                other(X).sum()
        thread = threading.Thread(target=evaluate)
        thread.start()
        for x, y, k in loader:
            update(criterion(model(x), y, k))
        done.set()
        thread.join()
        """,
}

NOT_REPLAYED = {
    "a generator drawn in the step": """
        noise, count = (i * 0.001 for i in range(1000)), itertools.count()
        class Holder:
            scale = iter([1.0] * 100)
        for x, y, k in loader:
            pred = model(x) * next(Holder.scale) + next(noise)
            KEPT.append(next(count))
            update(criterion(pred, y, k))
        KEPT += [next(noise), next(count)]
        """,
    "losses from a generator": """
        def losses():
            for x, y, k in loader:
                yield criterion(model(x), y, k)
        for loss in losses():
            update(loss)
        """,
    "coroutines": """
        import asyncio
        async def forward(x):
            return model(x)
        async def main():
            for x, y, k in loader:
                update(criterion(await forward(x), y, k))
        asyncio.run(main())
        """,
    "a database": """
        import sqlite3
        database = sqlite3.connect(":memory:")
        database.execute("create table steps (number int)")
        for i, (x, y, k) in enumerate(loader):
            pred = model(x)
            database.execute("insert into steps values (?)", (i,))
            update(criterion(pred, y, k))
        KEPT += database.execute("select number from steps").fetchall()
        database.close()
        """,
    "gradients put there by hand": """
        parameters = list(model.parameters())
        for x, y, k in loader:
            loss = criterion(model(x), y, k)
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
                parameter.grad = gradient
            opt.step()
        """,
    "a step that leaves when it is run again": """
        for lock in pathlib.Path().glob("*.lock"):
            lock.unlink()
        for i, (x, y, k) in enumerate(loader):
            pred = model(x)
            lock = pathlib.Path(f"{i}.lock")
            if lock.exists():
                sys.exit(1)
            lock.touch()
            update(criterion(pred, y, k))
        """,
}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    monkeypatch.setenv("UNSTUCK_TEST_CALLS", "")
    monkeypatch.setattr(logging, "lastResort", None)


@pytest.mark.parametrize("kind", NAMED)
def test_named_and_nothing_left_behind(kind: str, tmp_path: Path) -> None:
    run = both_agree(NAMED[kind], tmp_path)
    where = run.finding.where
    assert run.finding.code == "numerics.nonfinite-backward", run.finding
    assert (where.op, where.line, where.step) == ("sqrt", run.line_of("# HERE"), 3), run.finding
    assert where.batch == 3, run.finding


@pytest.mark.parametrize("kind", NOT_REPLAYED)
def test_not_replayed_says_so_and_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    run = both_agree(NOT_REPLAYED[kind], tmp_path)
    where = run.finding.where
    assert (run.finding.code, where.op, where.step) == ("numerics.nonfinite-backward", None, 3), run.finding
    assert run.verdict.rerun_step == 3
    assert not run.finding.confirmed
    assert any("--rerun" in note for note in run.finding.notes)
    again = watch(START + textwrap.dedent(NOT_REPLAYED[kind]), tmp_path, SessionOptions(trace_step=3))
    assert (again.finding.where.op, again.finding.where.line) == ("sqrt", again.line_of("# HERE")), again.finding


def test_batches_that_another_thread_fetches_ahead_have_no_index(tmp_path: Path) -> None:
    run = both_agree(
        """
        fetched = queue.Queue(3)
        def fetch():
            for batch in loader:
                fetched.put(batch)
            fetched.put(None)
        threading.Thread(target=fetch).start()
        while (batch := fetched.get()) is not None:
            x, y, k = batch
            update(criterion(model(x), y, k))
        """,
        tmp_path,
    )
    where = run.finding.where
    assert (where.op, where.line, where.batch) == ("sqrt", run.line_of("# HERE"), None), run.finding


def both_agree(program: str, folder: Path) -> Watched:
    """Watch a program to its end, past the incident, and compare what it kept with a plain run."""
    source = START + textwrap.dedent(program)
    run = watch(source, folder, SessionOptions(on_nonfinite="continue"))
    watched = [_bits(run.namespace["KEPT"]), _bits(list(run.namespace["model"].state_dict().values())), *_random()]
    namespace, output = _plain(run.file)
    plain = [_bits(namespace["KEPT"]), _bits(list(namespace["model"].state_dict().values())), *_random()]
    assert watched == plain
    assert run.output == output
    return run


def _plain(file: str) -> tuple[dict[str, Any], str]:
    module = ModuleType("__main__")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(Path(file).read_text(), file, "exec"), module.__dict__)
    os.environ.pop("UNSTUCK_TEST_CALLS", None)
    return module.__dict__, output.getvalue()


def _bits(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().numpy().tobytes()
    if isinstance(value, (list, tuple)):
        return [_bits(item) for item in value]
    return repr(value)


def _random() -> list[Any]:
    return [torch.get_rng_state().numpy().tobytes(), repr(np.random.get_state()), random.getstate()]


def test_weights_that_are_updated_by_hand_are_said_not_to_be_watched(tmp_path: Path) -> None:
    run = watch(
        """
        weight = torch.zeros(1, requires_grad=True)
        for i in range(3):
            ((weight - 1) ** 2).sum().backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
        """,
        tmp_path,
    )
    assert not run.verdict.findings
    assert run.verdict.watched[-1] == "without an optimizer whose weights could be watched"
