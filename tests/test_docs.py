"""The documentation keeps up: every code that is looked for has its page, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unstuck.diagnosis.judge import RULES
from unstuck.findings import CODES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Guides whose blocks of Python are one program.
GUIDES = ["checkpoints.md", "workflow.md"]


def rule_codes() -> set[str]:
    return {rule.__globals__["CODE"] for rule in RULES}


def test_every_rule_has_its_page_and_every_page_its_rule() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "findings").glob("*.*.md")}
    assert pages == rule_codes()
    for page in pages:
        assert (ROOT / "docs" / "findings" / f"{page}.md").read_text(encoding="utf-8").startswith(f"# {page}\n")


def test_index_has_every_code_with_its_meaning() -> None:
    index = (ROOT / "docs" / "findings" / "README.md").read_text(encoding="utf-8")
    for code in CODES.values():
        name = f"[{code.name}]({code.name}.md)" if code.name in rule_codes() else code.name
        assert f"| {name} | {code.meaning} |" in index


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


def test_documented_options_are_the_commands() -> None:
    from unstuck.cli.commands import _unstuck

    options = {option for parameter in _unstuck.commands["run"].params for option in parameter.opts if "--" in option}
    documented = set(re.findall(r"^\| `(--[a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert documented == options


@pytest.mark.parametrize("guide", GUIDES)
def test_code_of_the_guide_runs(guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / guide).read_text(encoding="utf-8"), re.M | re.S)
    names = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, guide, "exec"), names)
