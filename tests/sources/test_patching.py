"""Patches are undone in reverse, and never take away what somebody else has put there since."""

from __future__ import annotations

from unstuck.sources.patching import Patches


class Base:
    def method(self) -> str:
        return "base"


class Child(Base):
    pass


def test_an_own_and_an_inherited_attribute_come_back() -> None:
    patches = Patches()
    for owner in (Base, Child):
        patches.replace(owner, "method", lambda original: lambda self: f"<{original(self)}>")
    assert Child().method() == "<<base>>"
    patches.undo()
    assert Child().method() == Base().method() == "base"
    assert "method" not in vars(Child)


def test_a_later_patch_of_somebody_else_stays() -> None:
    class Owner:
        def method(self) -> str:
            return "own"

    patches = Patches()
    patches.replace(Owner, "method", lambda original: lambda self: "ours")
    Owner.method = lambda self: "theirs"  # type: ignore[method-assign]
    patches.undo()
    assert Owner().method() == "theirs"


def test_undo_runs_backwards_and_once() -> None:
    order: list[int] = []
    patches = Patches()
    patches.add(lambda: order.append(1))
    patches.add(lambda: order.append(2))
    patches.undo()
    patches.undo()
    assert order == [2, 1]
