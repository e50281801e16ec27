"""The layers of docs/architecture.md: each package imports only from those before it, and there is no cycle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

# Lowest first; packages and modules in one row don't know each other's rank and may only import lower rows, themselves,
# or, where the row is one package, its own parts.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("unstuck.errors", "unstuck.places", "unstuck.isolation"),
    ("unstuck.console",),
    ("unstuck.messages",),
    ("unstuck.findings",),
    ("unstuck.record",),
    ("unstuck.measure", "unstuck.signals", "unstuck.program"),
    ("unstuck.instruments", "unstuck.sources"),
    ("unstuck.trials",),
    ("unstuck.diagnosis",),
    ("unstuck.report",),
    ("unstuck.session",),
    (
        "unstuck.trainer",
        "unstuck.callbacks",
        "unstuck.loggers",
        "unstuck.profilers",
        "unstuck.strategies",
        "unstuck.tuner",
        "unstuck.plugins",
        "unstuck.utilities",
        "unstuck.integrations",
    ),
    ("unstuck.workflow",),
    ("unstuck.testing",),
    ("unstuck.cli",),
    ("unstuck.__main__",),
)
RANKS = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
TRAINER_ROW = set(LAYERS[RANKS["unstuck.trainer"]])
# What the Trainer's loops run on knows nothing of a session: they get what they use, never the debugger.
WITHOUT_SESSION = ("unstuck.trainer.loops", "unstuck.strategies", "unstuck.trainer.precision", "unstuck.loggers")


def module_name(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def imports(tree: ast.Module, names: frozenset[str], everywhere: bool) -> set[str]:
    """Modules of this package that a module imports: when it is loaded, or, ``everywhere``, also inside functions.

    What is imported for the type checker alone doesn't count: it never happens.
    """
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and is_type_checking(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not everywhere:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in names else str(node.module))
        waiting += ast.iter_child_nodes(node)
    return {name for name in found if name in names}


FILES = {
    module_name(file): file for file in sorted((SOURCE / "unstuck").rglob("*.py")) if "bootstrap" not in file.parts
}
TREES = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in FILES.items()}
AT_LOAD = {name: imports(tree, frozenset(FILES), everywhere=False) for name, tree in TREES.items()}
EVER = {name: imports(tree, frozenset(FILES), everywhere=True) for name, tree in TREES.items()}


def layer(name: str) -> str:
    return ".".join(name.split(".")[:2])


@pytest.mark.parametrize("name", sorted(set(FILES) - {"unstuck"}))
def test_module_imports_only_from_lower_layers(name: str) -> None:
    own = layer(name)
    assert own in RANKS, f"{own} has no place in the layers; give it one here and in docs/architecture.md"
    for target in EVER[name] - {"unstuck"}:
        other = layer(target)
        same_row = other == own or {own, other} <= TRAINER_ROW
        assert same_row or RANKS[other] < RANKS[own], f"{name} imports {target}, which isn't below it"


def test_package_itself_imports_nothing() -> None:
    assert AT_LOAD["unstuck"] == set()


def test_no_cycle_of_imports() -> None:
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            pytest.fail(" imports ".join((*trail[trail.index(name) :], name)))
        if name in done:
            return
        for target in sorted(AT_LOAD[name]):
            # A module that imports its own package's parent package only waits for what is loaded already.
            if not name.startswith(target + "."):
                visit(target, (*trail, name))
        done.add(name)

    for name in sorted(FILES):
        visit(name, ())


@pytest.mark.parametrize("name", sorted(name for name in FILES if name.startswith(WITHOUT_SESSION)))
def test_loops_know_no_session(name: str) -> None:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        for target in EVER[waiting.pop()] - reached:
            reached.add(target)
            waiting.append(target)
    assert not [target for target in reached if target.startswith("unstuck.session")]


@pytest.mark.parametrize("layer_name", ["unstuck.findings", "unstuck.record", "unstuck.diagnosis", "unstuck.report"])
def test_judging_and_drawing_need_no_torch(layer_name: str) -> None:
    for name, tree in TREES.items():
        if not name.startswith(layer_name):
            continue
        for node in ast.walk(tree):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not [module for module in modules if module.split(".")[0] in ("torch", "numpy")], name
