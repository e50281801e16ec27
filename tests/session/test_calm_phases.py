"""A run that has been calm for long and then changes is explained as exactly as one in its first steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.session.watching import Watched, watch
from unstuck.session import SessionOptions

PREPARED = """
from torch.utils.data import DataLoader, TensorDataset
X = torch.rand(2000, 4) + 0.1
Y = X.sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(X, Y)
"""


def calm(program: str, folder: Path, **names: Any) -> Watched:
    text = PREPARED + program
    for name, value in names.items():
        text = text.replace(name, str(value))
    return watch(text, folder, SessionOptions(budget=0.0))


COUNTED = """
step = 0
for epoch in range(3):
    for x, y in DataLoader(data, batch_size=100):
        scale = torch.ones_like(y)
        if step == BAD:
            scale[5] = 0
        loss = ((model(x) - y) / scale).pow(2).mean()  # HERE
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
"""


@pytest.mark.parametrize("bad", [3, 37, 50])
def test_a_counter_that_is_raised_behind_the_step_has_its_value_of_the_pass(bad: int, tmp_path: Path) -> None:
    run = calm(COUNTED, tmp_path, BAD=bad)
    where = run.finding.where
    assert (where.op, where.line, where.step) == ("div", run.line_of("# HERE"), bad)
    assert (where.batch, where.sample) == (bad % 20, 5)


COUNTED_WITHOUT_LOADER = """
step = 0
for start in [*range(0, 2000, 50)] * 3:
    rows, wanted = X[start : start + 50], Y[start : start + 50]
    loss = (model(rows) - wanted).pow(2).mean() + torch.tensor(float(step != BAD)).log()  # HERE
    opt.zero_grad()
    loss.backward()
    opt.step()
    step += 1
"""


def test_so_it_has_where_nothing_draws_batches(tmp_path: Path) -> None:
    run = calm(COUNTED_WITHOUT_LOADER, tmp_path, BAD=60)
    assert (run.finding.where.op, run.finding.where.line) == ("log", run.line_of("# HERE"))


NOISE = """
for step, (x, y) in enumerate(DataLoader(data, batch_size=10)):
    opt.zero_grad()
    out = model(x)
    if step >= 50:
        keep = torch.rand(10, 1)
        if step == BAD:
            chosen = keep.argmin().item()
            y = y / (keep > keep.min())  # HERE
    loss = (out - y).pow(2).mean()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize("bad", [50, 53, 58, 90])
def test_random_numbers_that_begin_late_are_those_of_the_step(bad: int, tmp_path: Path) -> None:
    run = calm(NOISE, tmp_path, BAD=bad)
    where = run.finding.where
    assert (where.op, where.line, where.step) == ("div", run.line_of("# HERE"), bad)
    assert (where.batch, where.sample) == (bad, run.namespace["chosen"])


def test_no_random_numbers_are_guessed(tmp_path: Path) -> None:
    # how many were drawn before this step can't be told from the step itself
    changed = NOISE.replace("keep = torch.rand(10, 1)", "keep = torch.rand(10 + 7 * (step == BAD), 1)[:10]")
    run = calm(changed, tmp_path, BAD=53)
    assert run.finding.where.step == 53
    assert run.finding.where.sample in (None, run.namespace["chosen"])
    assert run.finding.where.op is None
    assert any("random numbers" in reason for reason in run.session.recording.incidents[0].reasons)


ACCUMULATED = """
for step, (x, y) in enumerate(DataLoader(data, batch_size=10)):
    y = y.clone()
    if step == BAD:
        y[3] = y[3] / 0  # HERE
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    if step < BEGIN or step % 4 == 3:
        opt.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize(("begin", "bad"), [(0, 5), (0, 101), (30, 37), (60, 61)])
def test_the_batch_of_an_accumulated_step_is_the_one_that_spoilt_it(begin: int, bad: int, tmp_path: Path) -> None:
    run = calm(ACCUMULATED, tmp_path, BAD=bad, BEGIN=begin)
    where = run.finding.where
    assert (where.op, where.line) == ("div", run.line_of("# HERE"))
    assert (where.batch, where.sample) == (bad, 3)
    assert run.finding.evidence["dataset index"] == 10 * bad + 3


ACCUMULATED_WITHOUT_LOADER = """
for step in range(200):
    rows, wanted = X[step * 10 : step * 10 + 10], Y[step * 10 : step * 10 + 10]
    loss = (model(rows) - wanted).pow(2).mean() + torch.tensor(float(step != BAD)).log()  # HERE
    loss.backward()
    if step < BEGIN or step % 4 == 3:
        opt.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize(("begin", "bad"), [(0, 181), (40, 82)])
def test_accumulation_is_seen_however_late_it_begins(begin: int, bad: int, tmp_path: Path) -> None:
    run = calm(ACCUMULATED_WITHOUT_LOADER, tmp_path, BAD=bad, BEGIN=begin)
    assert (run.finding.where.op, run.finding.where.line) == ("log", run.line_of("# HERE"))


CLOSURE = """
other = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=4)
def train(x, y):
    def closure():
        other.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        return loss
    other.step(closure)

for step, (x, y) in enumerate(DataLoader(data, batch_size=10)):
    y = y.clone()
    if step == BAD:
        y[3] = y[3] / 0  # HERE
    if step >= 40:
        train(x, y)
        continue
    opt.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize("bad", [40, 44])
def test_what_is_computed_before_a_closures_first_pass_is_named(bad: int, tmp_path: Path) -> None:
    run = calm(CLOSURE, tmp_path, BAD=bad)
    where = run.finding.where
    assert (where.op, where.line, where.step) == ("div", run.line_of("# HERE"), bad)
    assert (where.batch, where.sample) == (bad, 3)


DROPPED = """
for step, (x, y) in enumerate(DataLoader(data, batch_size=10)):
    y = y.clone()
    if step in (BAD, BAD + 5):
        y[3] = y[3] / 0  # HERE
    loss = (model(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    if step == BAD and not torch.isfinite(loss):
        continue
    opt.step()
"""


@pytest.mark.parametrize("bad", [2, 45, 120])
def test_a_step_that_the_program_drops_late_is_none_but_the_next_bad_one_is(bad: int, tmp_path: Path) -> None:
    run = calm(DROPPED, tmp_path, BAD=bad)
    where = run.finding.where
    assert (where.op, where.step, where.batch, where.sample) == ("div", bad + 4, bad + 5, 3)


SECOND = """
other = nn.Linear(4, 1)
second = torch.optim.Adam(other.parameters(), lr=0.01)
for step, (x, y) in enumerate(DataLoader(data, batch_size=10)):
    opt.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    opt.step()
    if step >= BAD - 4:
        y = y.clone()
        if step == BAD:
            y[3] = y[3] / 0  # HERE
        second.zero_grad()
        (other(x) - y).pow(2).mean().backward()
        second.step()
"""


def test_a_second_optimizer_may_begin_late(tmp_path: Path) -> None:
    run = calm(SECOND, tmp_path, BAD=60)
    where = run.finding.where
    assert (where.op, where.line, where.step) == ("div", run.line_of("# HERE"), 65)
    assert (where.batch, where.sample) == (60, 3)


LATE = """
model = nn.Linear(4, 1)
extra = nn.Parameter(torch.ones(3))
opt = torch.optim.Adam([*model.parameters(), extra], lr=0.01, eps=0)
for step, (x, y) in enumerate(DataLoader(data, batch_size=10)):
    opt.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    if step >= BAD:
        loss = loss + (extra * 0).sum()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize("bad", [5, 60])
def test_no_batch_of_a_later_step_is_told(bad: int, tmp_path: Path) -> None:
    run = calm(LATE, tmp_path, BAD=bad)
    where = run.finding.where
    assert run.finding.code == "numerics.nonfinite-parameter"
    assert where.step == bad
    assert where.batch in (None, bad)


OWN_GENERATOR = """
for step, (x, y) in enumerate(DataLoader(data, batch_size=10)):
    if step == 55:
        generator = torch.Generator().manual_seed(3)
    weight = torch.ones_like(y)
    if step >= 55:
        drawn = torch.rand(10, 1, generator=generator)
        if step == 60:
            chosen = drawn.argmin().item()
            weight = (drawn > drawn.min()).float()
    loss = ((model(x) - y) / weight).pow(2).mean()  # HERE
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_a_generator_that_was_made_late_is_not_taken_as_it_is_now(tmp_path: Path) -> None:
    run = calm(OWN_GENERATOR, tmp_path)
    assert (run.finding.where.step, run.finding.where.batch) == (60, 60)
    assert run.finding.where.sample in (None, run.namespace["chosen"])


OVERFLOW = """
for step in range(120):
    loss = (model(X[:100]) - Y[:100]).pow(2).mean() * (1000.0 if step == BAD else 1.0)
    opt.zero_grad()
    loss.backward()
    opt.param_groups[0]["lr"] = 3e38 if step == BAD else 0.001
    opt.step()  # HERE
"""


@pytest.mark.parametrize("bad", [3, 37, 41, 100])
def test_an_update_that_overflows_without_a_trace_in_the_state_is_told_as_one(bad: int, tmp_path: Path) -> None:
    run = calm(OVERFLOW, tmp_path, BAD=bad)
    assert run.finding.code == "numerics.nonfinite-parameter"
    assert (run.finding.where.line, run.finding.where.step) == (run.line_of("# HERE"), bad)
