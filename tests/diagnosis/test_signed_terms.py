"""Terms of a loss with their signs and factors, read from a trace of the program that computes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.watching import watch
from unstuck.diagnosis.rules.loss_scale import scaling_of
from unstuck.diagnosis.signed_terms import first_loss, terms_of
from unstuck.record.anatomy import Anatomy
from unstuck.session import SessionOptions

PROGRAM = """
model = nn.Linear(4, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
weight = torch.tensor(-2.0)
half = torch.tensor(0.5)
for step in range(2):
    out = model(x)
    loss = {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def terms(loss: str, folder: Path) -> list[tuple[str, int, float, int]]:
    """(operation, sign, factor, elements summed) of each term, without derivatives."""
    run = watch(PROGRAM.format(loss=loss), folder, SessionOptions(budget=0.0))
    found = first_loss(run.session.recording.all(Anatomy))
    assert found is not None
    return [
        (found[0].ops[item.op].name if item.op is not None else "leaf", item.sign, item.factor, item.summed)
        for item in terms_of(*found)
    ]


CE = "F.cross_entropy(out, y)"


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (CE, [("nll_loss", 1, 1.0, 1)]),
        (f"-{CE}", [("nll_loss", -1, 1.0, 1)]),
        (f"0 - {CE}", [("nll_loss", -1, 1.0, 1)]),
        (f"1 - {CE} * 3", [("nll_loss", -1, 3.0, 1)]),
        (f"{CE} / -4", [("nll_loss", -1, 0.25, 1)]),
        (f"{CE} * weight", [("nll_loss", -1, 2.0, 1)]),
        (f"-(half * {CE})", [("nll_loss", -1, 0.5, 1)]),
        (f"torch.sub({CE}, out.pow(2).mean(), alpha=0.1)", [("nll_loss", 1, 1.0, 1), ("pow", -1, 0.1, 1)]),
        ("-F.log_softmax(out, 1)[torch.arange(8), y].mean()", [("log_softmax", -1, 1.0, 1)]),
        ("F.log_softmax(out, 1).gather(1, y[:, None]).mean()", [("log_softmax", 1, 1.0, 1)]),
        ("(out.exp().sum(1) - out.pow(2).sum(1)).mean()", [("exp", 1, 1.0, 3), ("pow", -1, 1.0, 3)]),
        ("torch.stack([out.exp().mean(), -out.exp().mean()]).sum()", [("exp", 1, 1.0, 2), ("exp", -1, 1.0, 2)]),
        ("(F.log_softmax(out, 1)[:, 0] * torch.randn(8)).mean()", [("log_softmax", 0, float("nan"), 1)]),
    ],
)
def test_terms(loss: str, expected: list[tuple[str, int, float, int]], tmp_path: Path) -> None:
    found = terms(loss, tmp_path)
    assert [item[:2] for item in found] == [item[:2] for item in expected]
    for item, wanted in zip(found, expected, strict=True):
        assert item[2] == pytest.approx(wanted[2], nan_ok=True)
        assert item[3] == wanted[3]


@pytest.mark.parametrize(
    ("loss", "factor", "summed"),
    [
        (f"{CE} * 1e-5", 1e-5, False),
        (f"{CE} / 8 / 8", 1 / 64, False),
        (f"{CE} * 1000", 1000.0, False),
        ("F.mse_loss(out.repeat(20, 1), torch.zeros(160, 3), reduction='sum')", 480.0, True),
        ("out.repeat(20, 1).pow(2).sum()", 480.0, True),
        (CE, None, False),
        (f"0.5 * {CE}", None, False),
        (f"{CE} + 1e-4 * model.weight.pow(2).sum()", None, False),
        ("out.repeat(20, 1).pow(2).sum() / 480", None, False),
    ],
)
def test_scaling(loss: str, factor: float | None, summed: bool, tmp_path: Path) -> None:
    run = watch(PROGRAM.format(loss=loss), tmp_path, SessionOptions(budget=0.0))
    found = first_loss(run.session.recording.all(Anatomy))
    assert found is not None
    scaling = scaling_of(*found)
    if factor is None:
        assert scaling is None
        return
    assert scaling is not None
    assert scaling.factor == pytest.approx(factor)
    assert scaling.summed is summed
