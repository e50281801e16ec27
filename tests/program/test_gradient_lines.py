"""Statements on gradients, found in a file's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstuck.program.gradient_lines import dropped_clip_lines, dropped_update_lines, gradient_changes


def written(folder: Path, *lines: str) -> str:
    file = folder / "program.py"
    file.write_text("\n".join(lines) + "\n")
    return str(file)


@pytest.mark.parametrize(
    "statement",
    [
        "p.grad.clamp(-1, 1)",
        "p.grad.data.clamp(min=-1, max=1)",
        "torch.clamp(p.grad, -1, 1)",
        "p.grad.clip(-limit, limit)",
    ],
)
def test_a_limit_out_of_place(tmp_path: Path, statement: str) -> None:
    assert dropped_clip_lines(written(tmp_path, "for p in parameters:", f"    {statement}")) == [2]


@pytest.mark.parametrize(
    "statement",
    [
        "p.grad.clamp_(-1, 1)",
        "p.grad = p.grad.clamp(-1, 1)",
        "torch.clamp(p.grad, -1, 1, out=p.grad)",
        "p.clamp(-1, 1)",
        "seen.append(p.grad.clamp(-1, 1))",
    ],
)
def test_a_limit_that_is_kept(tmp_path: Path, statement: str) -> None:
    assert dropped_clip_lines(written(tmp_path, "for p in parameters:", f"    {statement}")) == []


@pytest.mark.parametrize(
    "statement", ["p = p - lr * p.grad", "p.data.sub(lr * p.grad)", "torch.sub(p, lr * p.grad)", "p.data - lr * p.grad"]
)
def test_an_update_that_is_dropped(tmp_path: Path, statement: str) -> None:
    assert dropped_update_lines(written(tmp_path, "for p in net.parameters():", f"    {statement}")) == [2]


@pytest.mark.parametrize(
    "lines",
    [
        ("p -= lr * p.grad",),
        ("p.sub_(lr * p.grad)",),
        ("p.data = p.data - lr * p.grad",),
        ("p = p - lr * p.grad", "    new.append(p)"),
        ("new[name] = p - lr * p.grad",),
        ("torch.sub(p, lr * p.grad, out=p)",),
        ("norm = p.grad.norm()",),
    ],
)
def test_an_update_that_arrives(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert dropped_update_lines(written(tmp_path, "for p in net.parameters():", f"    {lines[0]}", *lines[1:])) == []


def test_changes_of_gradients(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "def limit(model):",
        "    grads = [p.grad for p in model.parameters() if p.grad is not None]",
        "    total = sum(g.norm() for g in grads)",
        "    for g in grads:",
        "        g.mul_(1 / total)",
        "for p in parameters:",
        "    p.grad.add_(noise)",
        "    p.grad.zero_()",
        "    p.grad = None",
        "    p.weight.mul_(2)",
    )
    assert [(item.line, item.function, item.divides) for item in gradient_changes(file)] == [
        (5, "limit", True),
        (7, "<module>", False),
    ]
