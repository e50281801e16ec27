"""A report on the terminal, in at most one screen: findings, the most important first, or one line when all is well.

Everything that comes from the user's program (names, paths, numbers, messages) is shown literally: no markup is read in
it, and control characters appear as escapes.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from rich.text import Text

from unstuck.console import console
from unstuck.diagnosis.coverage import had_nothing_to_see

__all__ = ["lines", "show"]

SCREEN_LINES = 24
SCREEN_COLUMNS = 80
# The shell's prompt needs a line, and so does the line that calls back what was run.
ROOM = SCREEN_LINES - 2

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
_LABEL_COLUMNS = 7
_PLACE_KEYS = ("step", "batch", "sample", "module", "parameter", "op", "rank")
_CHAIN_FRAMES = 4
_EVIDENCE_ITEMS = 8


def show(report: dict[str, Any]) -> None:
    """Print a report on the package's console, its lines wrapped at the terminal's width, at 80 columns or more."""
    target = console()
    width = max(SCREEN_COLUMNS, target.width)
    for line in lines(report, width):
        target.print(line, soft_wrap=True)


def lines(report: dict[str, Any], width: int = SCREEN_COLUMNS) -> list[Text]:
    """The report as at most one screen of lines, none wider than ``width`` columns where there are findings.

    Args:
        report: as ``unstuck run --json`` writes it.
        width: columns of the terminal.
    """
    findings = report["findings"]
    tail = _tail(report, width)
    if not findings:
        # One line, however long: the terminal breaks it.
        return [_quiet_line(report), *tail]
    blocks = [_finding(finding, width) for finding in findings]
    head = [Text(_headline(findings), style="bold")]
    room = ROOM - len(head) - len(tail)
    return [*head, *_fit(findings, blocks, room, width), *tail]


def _fit(findings: list[dict[str, Any]], blocks: list[list[Text]], room: int, width: int) -> list[Text]:
    """The first finding in full, then as many in full as leave a line for each of the rest, then a line each."""
    shown: list[Text] = []
    for index, block in enumerate(blocks):
        rest = len(blocks) - index - 1
        if len(shown) + len(block) + min(rest, 1) <= room:
            shown += block
            continue
        if index == 0:
            shown += _shorten(block, room - min(rest, 1))
            continue
        left = room - len(shown)
        brief = findings[index:]
        if len(brief) > left:
            brief = brief[: left - 1]
        shown += [_brief(finding, width) for finding in brief]
        hidden = len(findings) - index - len(brief)
        if hidden:
            shown.append(Text(f"and {hidden} more in the report"))
        break
    return shown


def _shorten(block: list[Text], room: int) -> list[Text]:
    """Cut lines out of the middle: the cause stands first, the remedy last."""
    keep_last = min(4, room // 3)
    return [
        *block[: room - keep_last - 1],
        Text(" " * (_LABEL_COLUMNS + 1) + "[...]"),
        *block[len(block) - keep_last :],
    ]


def _headline(findings: list[dict[str, Any]]) -> str:
    counts = {name: sum(finding["severity"] == name for finding in findings) for name in _STYLES}
    named = [f"{count} {name}{'s' * (count > 1 and name != 'info')}" for name, count in counts.items() if count]
    return f"unstuck: {', '.join(named)}"


def _quiet_line(report: dict[str, Any]) -> Text:
    watched = [literal(item) for item in report.get("watched") or ()]
    if report.get("failure"):
        last = str(report["failure"]).strip().splitlines()[-1]
        return Text(f"unstuck: watching failed, the script ran without it ({literal(last)})")
    if not watched:
        return Text("unstuck: nothing was trained in this process, so there is nothing to report")
    cost = report.get("cost")
    told = f"; watching cost {_percent(cost)}" if isinstance(cost, (int, float)) else ""
    idle = sum(had_nothing_to_see(str(phrase)) for phrase in report.get("unchecked") or ())
    unused = f"; {idle} check{'s' * (idle > 1)} had nothing to look at" if idle else ""
    return Text(f"unstuck: nothing wrong found in {', '.join(watched)}{unused}{told}")


def _percent(cost: float) -> str:
    return "less than 0.1 % of the time" if cost < 0.001 else f"{100 * cost:.1f} % of the time"


def _tail(report: dict[str, Any], width: int) -> list[Text]:
    shown: list[Text] = []
    phrases = [str(item) for item in report.get("unchecked") or ()]
    unchecked = [literal(phrase) for phrase in phrases if not had_nothing_to_see(phrase)]
    if unchecked:
        more = f" (and {len(unchecked) - 1} more)" if len(unchecked) > 1 else ""
        if report["findings"]:
            shown += _wrap(_labelled("not checked", unchecked[0] + more), width)[:2]
        else:
            shown += [Text(f"unstuck: not checked: {unchecked[0]}{more}")]
    if report["findings"]:
        if report.get("failure"):
            shown += [_labelled("note", "a part of the watching failed; the report holds its traceback")]
        if report.get("out"):
            shown += _wrap(_labelled("saved", literal(report["out"])), width)[:4]
    return shown


def _finding(finding: dict[str, Any], width: int) -> list[Text]:
    """One finding in full: code and place, cause, place in the run, evidence, notes, remedy."""
    where = finding.get("where") or {}
    head = Text(f"{finding['severity']:<{_LABEL_COLUMNS}} ", style=_STYLES.get(finding["severity"], "bold"))
    head.append(literal(finding["code"]), style="bold")
    if where.get("file") is not None:
        head.append(f"  {_location(where)}", style="underline" if where.get("line") else "")
    body = [head]
    if finding.get("summary"):
        body.append(_labelled("", literal(finding["summary"])))
    chain = where.get("chain") or []
    if len(chain) > 1:
        dropped = "... > " if len(chain) > _CHAIN_FRAMES else ""
        calls = " > ".join(f"{_location(frame)} {literal(frame['function'])}" for frame in chain[-_CHAIN_FRAMES:])
        body.append(_labelled("via", dropped + calls))
    place = [f"{key} {literal(where[key])}" for key in _PLACE_KEYS if where.get(key) not in (None, "")]
    if place:
        body.append(_labelled("at", ", ".join(place)))
    evidence = _evidence(finding.get("evidence") or {})
    if evidence:
        body.append(_labelled("seen", evidence))
    if finding.get("confirmed"):
        body.append(_labelled("tried", "confirmed by an experiment that left the run as it was"))
    body += [_labelled("note", literal(note)) for note in finding.get("notes") or ()]
    if finding.get("symptoms"):
        body.append(_labelled("also", "explains " + ", ".join(literal(code) for code in finding["symptoms"])))
    if finding.get("remedy"):
        body.append(_labelled("fix", literal(finding["remedy"])))
    return [line for text in body for line in _wrap(text, width)]


def _brief(finding: dict[str, Any], width: int) -> Text:
    where = finding.get("where") or {}
    line = Text(f"{finding['severity']:<{_LABEL_COLUMNS}} ", style=_STYLES.get(finding["severity"], "bold"))
    place = f"  {_location(where)}" if where.get("file") is not None else ""
    line.append(literal(f"{finding['code']}{place}  {finding.get('summary', '')}"))
    line.truncate(width, overflow="ellipsis")
    return line


def _location(place: dict[str, Any]) -> str:
    line = f":{place['line']}" if place.get("line") is not None else ""
    return literal(place["file"]) + line


def _evidence(evidence: dict[str, Any]) -> str:
    items = [f"{literal(key)} {_value(value)}" for key, value in evidence.items() if value not in (None, [], {}, "")]
    more = [f"... {len(items) - _EVIDENCE_ITEMS} more"] if len(items) > _EVIDENCE_ITEMS else []
    return ", ".join(items[:_EVIDENCE_ITEMS] + more)


def _value(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (float, dict, list, tuple)):
        return literal(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        if {"shape", "dtype"} <= value.keys():
            return _tensor(value)
        parts = [f"{literal(key)} {_value(item)}" for key, item in value.items() if item not in (None, [], {}, "")]
        return f"({', '.join(parts)})"
    if len(value) == 1:
        return _value(value[0])
    items = [_value(item) for item in value[:4]]
    return "[" + ", ".join(items + ["..."] * (len(value) > 4)) + "]"


def _tensor(summary: dict[str, Any]) -> str:
    """``(float32 50x10, 0 to 1, at the fault 0)``: what went into an operation."""
    parts = [f"{literal(summary['dtype'])} {literal(summary['shape']) or 'scalar'}"]
    if summary.get("low") is not None:
        parts.append(f"{_value(summary['low'])} to {_value(summary['high'])}")
    parts += [f"{literal(summary[key])} {key}" for key in ("nan", "inf") if summary.get(key)]
    if summary.get("offending") is not None:
        parts.append(f"at the fault {_value(summary['offending'])}")
    return f"({', '.join(parts)})"


def _labelled(label: str, text: str) -> Text:
    line = Text(f"  {label:<{_LABEL_COLUMNS - 2}} " if len(label) <= _LABEL_COLUMNS - 2 else f"  {label} ", style="dim")
    line.append(text, style="not dim")
    return line


def _wrap(text: Text, width: int) -> list[Text]:
    """Wrap at ``width`` columns; further lines are indented under the text."""
    indent = _LABEL_COLUMNS + 1
    first, *rest = text.wrap(console(), width) or [text]
    if not rest:
        return [first]
    remainder = text[len(first.plain) :]
    remainder = remainder[len(remainder.plain) - len(remainder.plain.lstrip()) :]
    lines = [first, *(Text(" " * indent).append_text(line) for line in remainder.wrap(console(), width - indent))]
    for line in lines:
        line.rstrip()
    return lines


def literal(value: object) -> str:
    """``value`` as text in which control, format and unprintable characters stand as escapes."""
    return "".join(
        character
        if character == " " or not unicodedata.category(character).startswith(("C", "Z"))
        else _escape(character)
        for character in str(value)
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii") if not character.isprintable() else character
