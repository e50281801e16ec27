"""The cases: under watch each program computes the same bits as without, and the incidents are named.

A seeded third of the programs by default, every incident of the numerics group among them; all of them with
UNSTUCK_ALL_CASES=1.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.cli.compare import Observation, differences, observe

CASES = Path(__file__).parent / "cases"
SEED = 20
IMPLEMENTED = (
    "numerics.nonfinite-forward",
    "numerics.nonfinite-backward",
    "numerics.nonfinite-parameter",
    "data.nonfinite-input",
    "numerics.low-precision-overflow",
)

_spec = importlib.util.spec_from_file_location("judge", CASES / "judge.py")
assert _spec is not None
assert _spec.loader is not None
judge = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(judge)


def programs() -> list[tuple[dict[str, Any], Path]]:
    """Every program with its case, in a fixed order."""
    found = []
    for file in sorted(CASES.rglob("case.json")):
        case = json.loads(file.read_text())
        found += [(case, file.with_name(name)) for name in ("train.py", "fixed.py") if file.with_name(name).exists()]
    return found


def is_incident(case: dict[str, Any], program: Path) -> bool:
    return not case.get("healthy") and program.name == "train.py" and case["code"] in IMPLEMENTED


def chosen() -> list[Any]:
    """The programs of this run of the suite, as pytest's parameters."""
    every = programs()
    if os.environ.get("UNSTUCK_ALL_CASES") != "1":
        rest = [item for item in every if not is_incident(*item)]
        incidents = [item for item in every if is_incident(*item)]
        rest = random.Random(SEED).sample(rest, len(every) // 3 - len(incidents))
        every = [item for item in every if item in incidents or item in rest]
    return [pytest.param(case, program, id=f"{program.parent.name}/{program.name}") for case, program in every]


@pytest.mark.parametrize(("case", "program"), chosen())
def test_watched_run_is_the_plain_run_and_incidents_are_named(
    case: dict[str, Any], program: Path, tmp_path: Path
) -> None:
    plain = observe(program, tmp_path / "plain", watched=False)
    watched = observe(program, tmp_path / "watched", watched=True)
    assert differences(plain, watched) == []
    assert watched.report is not None
    assert watched.report["failure"] is None
    assert not any("was switched off: " in phrase for phrase in watched.report["unchecked"])
    if is_incident(case, program) and plain.outcome.status == 0 and not plain.noted["nonfinite"]:
        pytest.skip("the arithmetic of this machine takes another way: the plain run meets no NaN")
    if is_incident(case, program):
        first = min(plain.noted["nonfinite"], default=None)
        assert_named(case, program, watched, met_earlier=first is not None and first < (case["where"]["step"] or 0))
    elif case.get("healthy") or program.name == "fixed.py":
        assert [f["code"] for f in watched.report["findings"] if f["severity"] in ("error", "warning")] == []


def assert_named(case: dict[str, Any], program: Path, watched: Observation, met_earlier: bool) -> None:
    """The finding is the case's; where this machine's plain run ``met`` a NaN ``earlier``, its line and op are."""
    assert watched.report is not None
    loud = [finding for finding in watched.report["findings"] if finding["severity"] in ("error", "warning")]
    codes = [finding["code"] for finding in loud]
    assert codes, "nothing was found"
    siblings = {"numerics.nonfinite-forward", "numerics.nonfinite-backward"} if met_earlier else set()
    assert codes[0] in {case["code"], *case.get("also_ok", []), *siblings}
    assert not set(codes) & set(case.get("never", []))
    rounding = {"step", "batch", "sample"} if met_earlier else set()
    hits = judge.near(loud[0]["where"], case["where"], program)
    wrong = [key for key, hit in hits.items() if not hit and key not in rounding]
    assert wrong == [], f"wrong place: got {loud[0]['where']}, expected {case['where']}"
