"""What becomes of gradients between the pass that leaves them and the step that takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.watching import watch
from unstuck.record.order import OrderRecord

SETUP = """
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
def loss():
    return model(torch.randn(8, 4)).pow(2).mean()
"""

CLEARINGS = {
    "optimizer": "opt.zero_grad()",
    "in place": "opt.zero_grad(set_to_none=False)",
    "model": "model.zero_grad()",
    "to None": "[setattr(p, 'grad', None) for p in model.parameters()]",
    "zeroed by hand": "[p.grad.zero_() for p in model.parameters() if p.grad is not None]",
}


def order_of(program: str, folder: Path) -> OrderRecord:
    run = watch(SETUP + program, folder)
    (order,) = run.session.recording.all(OrderRecord)
    return order


@pytest.mark.parametrize("clearing", CLEARINGS.values(), ids=CLEARINGS)
def test_every_way_to_clear_is_seen(clearing: str, tmp_path: Path) -> None:
    order = order_of(f"for _ in range(20): {clearing}; loss().backward(); opt.step()", tmp_path)
    assert (order.steps, order.judged, order.fresh, order.piled, order.cleared) == (20, 20, 20, 0, 0)


@pytest.mark.parametrize("clearing", CLEARINGS.values(), ids=CLEARINGS)
def test_clearing_before_the_step_takes_all(clearing: str, tmp_path: Path) -> None:
    order = order_of(f"for _ in range(20): loss().backward(); {clearing}; opt.step()", tmp_path)
    assert order.cleared == 20 and order.fresh == order.piled == 0


def test_nothing_cleared_piles_up(tmp_path: Path) -> None:
    order = order_of("for _ in range(20): loss().backward(); opt.step()", tmp_path)
    assert (order.fresh, order.piled) == (1, 19)


def test_passes_are_gathered_before_a_step(tmp_path: Path) -> None:
    program = "for _ in range(10): opt.zero_grad(); loss().backward(); loss().backward(); opt.step()"
    order = order_of(program, tmp_path)
    assert (order.fed, order.fresh, order.piled, order.micro) == (20, 10, 0, 0)


def test_clearing_between_passes_of_one_line_loses_all_but_the_last(tmp_path: Path) -> None:
    program = """
for i in range(30):
    opt.zero_grad()
    loss().backward()
    if i % 3 == 2: opt.step()
"""
    order = order_of(program, tmp_path)
    assert (order.steps, order.micro, order.micro_passes) == (10, 10, 20)


def test_clipping_is_no_tampering_and_a_decay_by_hand_is(tmp_path: Path) -> None:
    clipped = """
for _ in range(20):
    loss().backward(); torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1); opt.step()
"""
    assert order_of(clipped, tmp_path).piled == 19
    decayed = """
for _ in range(20):
    [p.grad.mul_(0.5) for p in model.parameters() if p.grad is not None]
    loss().backward(); opt.step()
"""
    assert order_of(decayed, tmp_path).piled == 0


def test_steps_without_a_pass(tmp_path: Path) -> None:
    order = order_of("for _ in range(12): opt.step()", tmp_path)
    assert (order.bare, order.fresh, order.fed) == (12, 0, 0)


def test_a_closure_is_judged_when_it_is_over(tmp_path: Path) -> None:
    program = """
def closure():
    opt.zero_grad()
    value = loss()
    value.backward()
    return value
for _ in range(12): opt.step(closure)
"""
    order = order_of(program, tmp_path)
    assert order.closure and (order.fresh, order.piled, order.cleared) == (12, 0, 0)


def test_a_long_run_is_followed_in_windows(tmp_path: Path) -> None:
    order = order_of("for _ in range(600): loss().backward(); opt.step(); opt.zero_grad()", tmp_path)
    assert order.steps == 600 and 128 <= order.judged < 200
    assert order.fresh == order.judged
