"""Statements of a user's file that say what a product or a difference in a loss stands for, by the names they use."""

from __future__ import annotations

import ast
import re

from unstuck.program.statements import syntax_tree

__all__ = ["rewarded_lines", "swapped_triplet_lines"]

_LOG_PROBABILITY = re.compile(r"(^|_)(log_?ps?|log_?pis?|log_?probs?|logprobs?|log_?probabilit(y|ies))($|_)", re.I)
_RATIO = re.compile(r"(^|_)ratios?($|_)", re.I)
_REWARD = re.compile(r"(^|_)(rewards?|returns?|rtgs?|rets?|discounted)($|_)|^[RG](_?t)?$", re.I)
_ADVANTAGE = re.compile(r"(^|_)(advs?|advantages?|gaes?)($|_)", re.I)
_COST = re.compile(r"cost|loss|penalt|regret|error|neg|nll|energy", re.I)
_POSITIVE = re.compile(r"(^|_)(pos|positives?|ap|same)($|_)", re.I)
_NEGATIVE = re.compile(r"(^|_)(neg|negatives?|an|diff|different)($|_)", re.I)
_SIMILARITY = re.compile(r"sim|cos|score|logit|dot|prob", re.I)


def rewarded_lines(file: str) -> list[tuple[int, int]]:
    """(first, last line) of products of a log-probability, or a ratio of probabilities, and a reward or an advantage.

    Only those in which nothing says that the reward is turned: no minus in the product or where its factors are made,
    no advantage that is the estimate minus the return, no cost.
    """
    tree = syntax_tree(file)
    turned = _turned_names(tree)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        names = [_names(side) for side in (node.left, node.right)]
        if any(turned & side or any(_COST.search(name) for name in side) for side in names):
            continue
        if any(isinstance(inner, (ast.USub, ast.Sub)) for inner in ast.walk(node)):
            continue
        for one, other in (names, names[::-1]):
            gain = any(_ADVANTAGE.search(name) for name in other)
            paid = gain or any(_REWARD.search(name) for name in other)
            likely = any(_LOG_PROBABILITY.search(name) for name in one)
            if (likely and paid) or (gain and any(_RATIO.search(name) for name in one)):
                found.append((node.lineno, node.end_lineno or node.lineno))
                break
    return sorted(set(found))


def swapped_triplet_lines(file: str) -> list[tuple[int, int]]:
    """(first, last line) of hinges over what is called a negative's distance minus a positive's."""
    found = []
    for node in ast.walk(syntax_tree(file)):
        if not isinstance(node, ast.Call) or _called(node) not in ("relu", "clamp", "clamp_min", "max", "maximum"):
            continue
        for inner in ast.walk(node):
            if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.Sub):
                continue
            left, right = _last_names(inner.left), _last_names(inner.right)
            if any(_SIMILARITY.search(name) for name in left | right):
                continue
            named = any(map(_NEGATIVE.search, left)) and any(map(_POSITIVE.search, right))
            if named and not any(map(_POSITIVE.search, left)) and not any(map(_NEGATIVE.search, right)):
                found.append((node.lineno, node.end_lineno or node.lineno))
    return sorted(set(found))


def _turned_names(tree: ast.Module) -> set[str]:
    """Names that are given something with a minus before it, or an estimate minus a return."""
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or node.value is None:
            continue
        if any(_turns(inner) for inner in ast.walk(node.value)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name for target in targets for name in _names(target)}
    return found


def _turns(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return not isinstance(node.operand, ast.Constant)  # dim=-1, a penalty of -1
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    taken, given = (any(map(_REWARD.search, _names(side))) for side in (node.right, node.left))
    return taken and not given


def _names(node: ast.AST) -> set[str]:
    """Names and attributes that an expression uses."""
    plain = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return plain | {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}


def _last_names(node: ast.AST) -> set[str]:
    """Names of an expression without those that only hold others."""
    return {name for name in _names(node) if name not in ("self", "torch", "F", "nn", "mean", "sum", "pow")}


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
