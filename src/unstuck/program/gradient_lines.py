"""Statements of a user's file that work on gradients by hand: that change them, or that compute a copy and drop it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from unstuck.program.statements import syntax_tree

__all__ = ["GradientLine", "dropped_clip_lines", "dropped_update_lines", "gradient_change_lines", "gradient_changes"]

_LIMITS = frozenset({"clamp", "clip", "clamp_min", "clamp_max"})
"""Functions and methods that return a limited copy."""

_ARITHMETIC = frozenset({"add", "sub", "subtract", "mul", "multiply", "addcdiv", "addcmul", "lerp"})
"""Methods that return a new tensor."""

_HARMLESS = frozenset({"zero_", "detach_", "requires_grad_", "copy_", "fill_", "clamp_", "clip_"})
"""Changes in place that make nothing non-finite of what is finite."""

_RISKY = frozenset({"div_", "true_divide_", "reciprocal_", "rsqrt_", "sqrt_", "log_", "pow_", "exp_"})
_RISKY_INSIDE = frozenset({item.removesuffix("_") for item in _RISKY} | {"norm"})


@dataclass(frozen=True)
class GradientLine:
    """A statement on gradients.

    Attributes:
        line: its number.
        function: name of the function that it stands in, ``<module>`` outside of any.
        divides: it divides, or takes a root, a power or a logarithm.
    """

    line: int
    function: str
    divides: bool


def gradient_changes(file: str) -> list[GradientLine]:
    """Statements that change a ``.grad``, or a name that was made from one, in place or by assignment."""
    found = []
    for function, body in _functions(syntax_tree(file)):
        made_of = _names_of_gradients(body)
        for node in body:
            changed = _changed_by(node)
            if changed is not None and _is_gradient(changed, made_of):
                found.append(GradientLine(node.lineno, function, _divides(node)))  # type: ignore[attr-defined]
    return sorted(set(found), key=lambda item: item.line)


def gradient_change_lines(file: str) -> list[int]:
    """Lines of :func:`gradient_changes`."""
    return [item.line for item in gradient_changes(file)]


def dropped_clip_lines(file: str) -> list[int]:
    """Statements that limit a gradient out of place and do nothing with the result: ``p.grad.clamp(-1, 1)``."""
    return sorted(
        node.lineno
        for node in ast.walk(syntax_tree(file))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and _method(node.value) in _LIMITS
        and not _is_kept(node.value)
        and _has_gradient(_operand(node.value))
    )


def dropped_update_lines(file: str) -> list[int]:
    """Statements that compute a parameter's new value from its gradient and put it nowhere.

    ``p = p - lr * p.grad`` in a loop over parameters gives the loop's name to a new tensor; ``p.data.sub(lr * p.grad)``
    and ``p - lr * p.grad`` as a statement give it to nobody.
    """
    found = []
    for _, body in _functions(syntax_tree(file)):
        looped = {item.id for node in body if isinstance(node, ast.For) for item in _names(node.target)}
        for node in body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                own = name in looped and f"{name}.grad" in ast.unparse(node.value)
                if own and not _is_read_after(body, name, node) and isinstance(node.value, (ast.BinOp, ast.Call)):
                    found.append(node.lineno)
            elif isinstance(node, ast.Expr):
                value = node.value
                computed = isinstance(value, ast.BinOp) or (
                    isinstance(value, ast.Call) and _method(value) in _ARITHMETIC and not _is_kept(value)
                )
                operand = value.left if isinstance(value, ast.BinOp) else _operand(value)
                if computed and not _has_gradient(operand) and _has_gradient(value):
                    found.append(node.lineno)
    return sorted(found)


def _names(target: ast.expr) -> list[ast.Name]:
    return [item for item in ast.walk(target) if isinstance(item, ast.Name)]


def _is_read_after(body: list[ast.AST], name: str, statement: ast.Assign) -> bool:
    """Whether a function reads a name behind a statement, so that what it has bound there is of use."""
    end = statement.end_lineno or statement.lineno
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node.lineno > end
        for node in body
    )


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _operand(call: ast.expr) -> ast.expr:
    """What a method is called on; the first argument of a function of torch's."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return call
    of_torch = ast.unparse(call.func.value) == "torch"
    return call.args[0] if of_torch and call.args else call.func.value


def _is_kept(call: ast.Call) -> bool:
    return any(item.arg == "out" for item in call.keywords)


def _functions(tree: ast.Module) -> Iterator[tuple[str, list[ast.AST]]]:
    """Every function with its nodes, without those of functions inside it; the module's own first."""
    waiting: list[tuple[str, ast.AST]] = [("<module>", tree)]
    while waiting:
        name, owner = waiting.pop(0)
        body: list[ast.AST] = []
        inside = list(ast.iter_child_nodes(owner))
        while inside:
            node = inside.pop(0)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                waiting.append((node.name, node))
                continue
            body.append(node)
            inside += ast.iter_child_nodes(node)
        yield name, body


def _names_of_gradients(body: list[ast.AST]) -> set[str]:
    """Names that a function binds to gradients, or to collections of them."""
    known: set[str] = set()
    while True:
        before = len(known)
        for node in body:
            if isinstance(node, ast.Assign):
                source, targets = node.value, node.targets
            elif isinstance(node, (ast.For, ast.comprehension)):
                source, targets = node.iter, [node.target]
            else:
                continue
            if _holds_gradients(source, known):
                known |= {item.id for item in targets if isinstance(item, ast.Name)}
        if len(known) == before:
            return known


def _holds_gradients(source: ast.expr, known: set[str]) -> bool:
    """Whether an expression is a gradient or a collection of gradients, not a number that was computed from them."""
    if isinstance(source, (ast.ListComp, ast.GeneratorExp)):
        return _is_gradient(source.elt, known)
    if isinstance(source, (ast.List, ast.Tuple)):
        return any(_is_gradient(item, known) for item in source.elts)
    return _is_gradient(source, known)


def _is_gradient(node: ast.expr, known: set[str]) -> bool:
    """``p.grad``, ``p.grad.data``, ``p.grad[0]`` or a name that stands for one."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return True
        node = node.value
    return isinstance(node, ast.Name) and node.id in known


def _has_gradient(node: ast.expr) -> bool:
    return any(isinstance(item, ast.Attribute) and item.attr == "grad" for item in ast.walk(node))


def _changed_by(node: ast.AST) -> ast.expr | None:
    """What a statement changes, None for one that changes nothing or only for the better."""
    if isinstance(node, ast.AugAssign):
        return node.target
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        attribute = target.value if isinstance(target, ast.Subscript) else target
        written = isinstance(attribute, ast.Attribute) and attribute.attr in ("grad", "data")
        return target if written and not isinstance(node.value, ast.Constant) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        in_place = name.endswith("_") and not name.endswith("__") and name not in _HARMLESS
        return node.func.value if in_place else None
    return None


def _divides(node: ast.AST) -> bool:
    return any(
        isinstance(item, ast.Div)
        or (isinstance(item, ast.Attribute) and item.attr in _RISKY | _RISKY_INSIDE)
        or isinstance(item, ast.Pow)
        for item in ast.walk(node)
    )
