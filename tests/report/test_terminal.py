"""A report on the terminal: at most one screen, the user's text shown literally, one line when all is well."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from unstuck.findings import CODES, Finding, Severity, Where
from unstuck.places import Frame
from unstuck.report import terminal


def report(*findings: Finding, **changes: Any) -> dict[str, Any]:
    """A complete report, as the command writes it."""
    return {
        "version": "0",
        "script": "train.py",
        "findings": [finding.as_json("/project") for finding in findings],
        "watched": ["12 steps of SGD", "1 model"],
        "unchecked": [],
        "cost": 0.0123,
        "failure": None,
        "out": "/project/out",
        **changes,
    }


def finding(**changes: Any) -> Finding:
    values: dict[str, Any] = {
        "code": "numerics.nonfinite-forward",
        "severity": Severity.ERROR,
        "summary": "log made -inf out of 0.0",
        "where": Where(
            file="/project/train.py",
            line=41,
            step=12,
            batch=3,
            sample=5,
            module="encoder.0",
            op="log",
            chain=(Frame("/project/train.py", 88, "<module>"), Frame("/project/train.py", 41, "normalise")),
        ),
        "evidence": {"low": 0.0, "loss": float("nan")},
        "remedy": "clamp the input",
        "notes": ("replayed bit for bit",),
    }
    return Finding(**{**values, **changes})


def text(shown: dict[str, Any], width: int = 80) -> str:
    return "\n".join(line.plain for line in terminal.lines(shown, width))


def test_finding_tells_code_place_evidence_and_remedy() -> None:
    shown = text(report(finding()))
    assert shown.splitlines()[0] == "unstuck: 1 error"
    for part in (
        "numerics.nonfinite-forward  train.py:41",
        "log made -inf out of 0.0",
        "train.py:88 <module> > train.py:41 normalise",
        "step 12, batch 3, sample 5, module encoder.0, op log",
        "low 0, loss nan",
        "replayed bit for bit",
        "fix   clamp the input",
        "saved /project/out",
    ):
        assert part in shown


def test_step_zero_and_root_module_are_places_and_unknown_is_silent() -> None:
    shown = text(report(finding(where=Where(step=0, module=""), evidence={}, notes=())))
    assert "  at    step 0\n" in shown
    assert "None" not in shown


def test_most_important_first_and_the_rest_counted() -> None:
    many = [finding(), *(finding(code=code, severity=Severity.WARNING) for code in list(CODES)[:30])]
    shown = text(report(*many)).splitlines()
    assert shown[0] == "unstuck: 1 error, 30 warnings"
    assert "numerics.nonfinite-forward" in shown[1]
    listed = sum(line.startswith("warning") for line in shown)
    assert f"and {30 - listed} more in the report" in shown
    assert listed >= 5


def test_nothing_wrong_is_one_line() -> None:
    assert text(report()) == "unstuck: nothing wrong found in 12 steps of SGD, 1 model; watching cost 1.2 % of the time"
    assert text(report(cost=0.0001)).endswith("less than 0.1 % of the time")
    assert text(report(cost=None)).endswith("1 model")
    assert "nothing was trained" in text(report(watched=[]))


def test_what_was_not_checked_is_told() -> None:
    assert "not checked: the gradients" in text(report(unchecked=["the gradients", "the data"]))


def test_what_the_model_has_none_of_is_counted_and_no_gap() -> None:
    shown = text(report(unchecked=["dead units: the model has no ReLU-like units"]))
    assert "; 1 check had nothing to look at" in shown
    assert "not checked" not in shown


def test_failure_of_ours_is_one_line() -> None:
    shown = text(report(watched=[], failure="Traceback ...\nKeyError: 'x'\n"))
    assert shown == "unstuck: watching failed, the script ran without it (KeyError: 'x')"


@pytest.mark.parametrize(
    ("raw", "literal"),
    [
        ("[red]x[/red]", "[red]x[/red]"),
        ("\x1b[31mx\n\r\t", "\\x1b[31mx\\n\\r\\t"),
        ("<b>&amp;", "<b>&amp;"),
        ("\u202eabc\u200b", "\\u202eabc\\u200b"),
        ("\x9b\x00", "\\x9b\\x00"),
        ("größe 大小", "größe 大小"),
    ],
)
def test_text_of_the_program_is_literal(raw: str, literal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(terminal, "console", lambda: Console(file=stream, force_terminal=True, width=80))
    terminal.show(report(finding(summary=raw, remedy=raw, where=Where(file=raw, module=raw, parameter=raw))))
    assert raw == literal or raw not in stream.getvalue()
    assert literal in stream.getvalue()


anything = st.text(max_size=300)
findings = st.builds(
    finding,
    code=st.sampled_from(sorted(CODES)),
    severity=st.sampled_from(Severity),
    summary=anything,
    where=st.builds(
        Where,
        file=st.none() | anything,
        line=st.none() | st.integers(1, 10**6),
        step=st.none() | st.integers(0),
        module=st.none() | anything,
        parameter=st.none() | anything,
        chain=st.lists(st.builds(Frame, anything, st.integers(1), anything), max_size=6).map(tuple),
    ),
    evidence=st.dictionaries(anything, st.floats() | anything | st.lists(st.floats()), max_size=12),
    remedy=anything,
    notes=st.lists(anything, max_size=6).map(tuple),
    symptoms=st.lists(st.sampled_from(sorted(CODES)), max_size=4).map(tuple),
    confirmed=st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(findings, min_size=1, max_size=30), st.lists(anything, max_size=3), anything)
def test_any_report_fits_one_screen(some: list[Finding], unchecked: list[str], out: str) -> None:
    shown = terminal.lines(report(*some, unchecked=unchecked, out=out))
    assert len(shown) <= terminal.SCREEN_LINES - 1
    assert max(line.cell_len for line in shown) <= terminal.SCREEN_COLUMNS
    assert all(character.isprintable() for line in shown for character in line.plain)
    assert some[0].code in "".join(line.plain for line in shown[1:3])
