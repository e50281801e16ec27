"""All rules are asked, whatever one of them does."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.session.watching import PRELUDE
from unstuck.diagnosis import judge
from unstuck.findings import Finding
from unstuck.record.recording import Recording
from unstuck.session import Ending, Session, SessionOptions, StopRun

PROGRAM = """
model = nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
(model(torch.ones(2, 3)) - 1).pow(2).mean().mul(float("inf")).backward()
opt.step()
"""


def _fails(recording: Recording) -> list[Finding]:
    raise KeyError("no such record")


@pytest.fixture
def with_a_bad_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("unstuck.diagnosis.judge")
    monkeypatch.setattr(module, "RULES", (_fails, *module.RULES))


@pytest.mark.usefixtures("with_a_bad_rule")
def test_a_rule_that_raises_takes_no_other_finding_away(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(PRELUDE + PROGRAM)
    session = Session(SessionOptions(script=file, budget=0.0))
    session.start()
    try:
        with pytest.raises(StopRun):
            exec(compile(file.read_text(), str(file), "exec"), {"__name__": "__main__"})
    finally:
        verdict = session.finish(Ending("completed"))
    assert [finding.code for finding in verdict.findings] == ["numerics.nonfinite-forward"]
    assert "the rule test_judge was switched off: KeyError: 'no such record'" in verdict.unchecked


@pytest.mark.usefixtures("with_a_bad_rule")
def test_the_error_is_raised_where_nobody_is_told() -> None:
    with pytest.raises(KeyError):
        judge(Recording())
