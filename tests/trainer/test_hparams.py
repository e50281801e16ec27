"""Hyperparameters: the same as Lightning saves, but for two mistakes of its."""

import argparse
import collections
import copy
import dataclasses
import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch.core.mixins import HyperparametersMixin as ReferenceMixin
from lightning.pytorch.utilities.parsing import AttributeDict as ReferenceDict

from unstuck.trainer.hparams import AttributeDict, HyperparametersMixin


def make_all(mixin: Any) -> dict[str, Any]:
    """Objects whose initialisers save their arguments in every way that there is."""

    class Plain(mixin):
        def __init__(self, a: Any, b: Any = 2, *args: Any, c: Any = None, **kwargs: Any) -> None:
            super().__init__()
            self.save_hyperparameters()

    class Child(Plain):
        def __init__(self, d: Any, a: Any = 7) -> None:
            super().__init__(a=a + 1, b=5, q=3)

    class IgnoringChild(Plain):
        def __init__(self, d: Any, a: Any = 7) -> None:
            super().__init__(a=a, b=5)
            self.save_hyperparameters(ignore="b")

    class Outer(mixin):
        def __init__(self, o: Any) -> None:
            super().__init__()
            self.inner = Plain(3)
            self.save_hyperparameters()

    class Named(mixin):
        def __init__(self, a: Any, b: Any, c: Any) -> None:
            super().__init__()
            self.save_hyperparameters("a", "c")

    class Configured(mixin):
        def __init__(self, config: Any, x: Any = 1) -> None:
            super().__init__()
            self.save_hyperparameters(config)

    class NameAndConfig(mixin):
        def __init__(self, config: Any, x: Any = 1) -> None:
            super().__init__()
            self.save_hyperparameters("x", config)

    class ByHelper(mixin):
        def __init__(self, a: Any) -> None:
            super().__init__()
            self.help()

        def help(self) -> None:
            self.save_hyperparameters()

    class Changed(mixin):
        def __init__(self, a: Any) -> None:
            super().__init__()
            a = a + 1
            self.save_hyperparameters(logger=False)

    class Twice(mixin):
        def __init__(self, a: Any, b: Any, c: Any) -> None:
            super().__init__()
            self.save_hyperparameters("a")
            self.save_hyperparameters("b")
            self.save_hyperparameters(ignore=("a", "c"))

    class Ignoring(mixin):
        def __init__(self, a: Any, b: Any, **kwargs: Any) -> None:
            super().__init__()
            self.save_hyperparameters(ignore=["b", "z"])

    class Empty(mixin):
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters()

    class Module(mixin, torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(self.hparams.width, 1)

    @dataclasses.dataclass
    class Data(mixin):
        a: int = 1
        b: str = "x"

        def __post_init__(self) -> None:
            super().__init__()
            self.save_hyperparameters(ignore=["b"])

    return {
        "plain": Plain(1, 3, 4, c=5, z=9),
        "child": Child(1),
        "ignoring child": IgnoringChild(1),
        "outer": Outer(4),
        "named": Named(1, 2, 3),
        "dictionary": Configured({"k": 1}),
        "namespace": Configured(argparse.Namespace(r=3)),
        "empty dictionary": Configured({}),
        "other mapping": Configured(collections.UserDict(k=2)),
        "name and dictionary": NameAndConfig({"k": 1}),
        "by helper": ByHelper(1),
        "changed": Changed(1),
        "twice": Twice(1, 2, 3),
        "ignoring": Ignoring(1, 2, y=3, z=4),
        "empty": Empty(),
        "module": Module(3),
        "dataclass": Data(3),
    }


def saved(instance: Any) -> tuple[Any, ...]:
    return (
        type(instance.hparams).__name__,
        dict(instance.hparams),
        dict(instance.hparams_initial),
        getattr(instance, "_hparams_name", "none"),
        instance._log_hyperparams,
    )


OURS, THEIRS = make_all(HyperparametersMixin), make_all(ReferenceMixin)


@pytest.mark.parametrize("case", OURS)
def test_the_same_is_saved_as_by_lightning(case: str) -> None:
    assert saved(OURS[case]) == saved(THEIRS[case])


def test_arguments_of_an_object_around_are_not_saved() -> None:
    assert dict(THEIRS["outer"].inner.hparams) == {"a": 3, "b": 2, "c": None, "o": 4}
    assert dict(OURS["outer"].inner.hparams) == {"a": 3, "b": 2, "c": None}


def test_an_initialiser_without_super_is_seen() -> None:
    class Model(HyperparametersMixin):
        def __init__(self, a: int) -> None:
            HyperparametersMixin.__init__(self)
            self.save_hyperparameters()

    assert dict(Model(1).hparams) == {"a": 1}


def test_a_decorated_initialiser_is_seen() -> None:
    def decorated(initialiser: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(initialiser)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            initialiser(*args, **kwargs)

        return wrapper

    class Model(HyperparametersMixin):
        @decorated
        def __init__(self, a: int, b: int = 2) -> None:
            super().__init__()
            self.save_hyperparameters()

    assert dict(Model(1).hparams) == {"a": 1, "b": 2}


def test_two_of_a_class_do_not_mix() -> None:
    class Node(HyperparametersMixin):
        def __init__(self, depth: int, **options: Any) -> None:
            super().__init__()
            self.child = Node(depth - 1) if depth else None
            self.save_hyperparameters()

    root = Node(2, colour="red")
    assert dict(root.hparams) == {"depth": 2, "colour": "red"}
    assert root.child is not None
    assert dict(root.child.hparams) == {"depth": 1}


@pytest.mark.parametrize("config", [3, 1.5, True, [1], (1, 2)])
@pytest.mark.parametrize("mixin", [HyperparametersMixin, ReferenceMixin])
def test_what_is_no_mapping_is_refused(mixin: Any, config: Any) -> None:
    class Model(mixin):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.save_hyperparameters(config)

    with pytest.raises(ValueError, match=type(config).__name__):
        Model(config)


@pytest.mark.parametrize("mixin", [HyperparametersMixin, ReferenceMixin])
def test_an_unknown_name_is_refused(mixin: Any) -> None:
    class Model(mixin):
        def __init__(self, a: int) -> None:
            super().__init__()
            self.save_hyperparameters("nope")

    with pytest.raises(KeyError, match="nope"):
        Model(1)


def test_a_module_among_them_is_told() -> None:
    class Model(HyperparametersMixin):
        def __init__(self, backbone: torch.nn.Module) -> None:
            super().__init__()
            self.save_hyperparameters()

    with pytest.warns(UserWarning, match=r"'backbone'.*ignore=\['backbone'\]"):
        Model(torch.nn.ReLU())


def test_initial_values_stay() -> None:
    class Model(HyperparametersMixin):
        def __init__(self, layers: list[int]) -> None:
            super().__init__()
            self.save_hyperparameters()

    model = Model([1, 2])
    model.hparams.layers.append(3)
    model.hparams.other = 4
    assert dict(model.hparams) == {"layers": [1, 2, 3], "other": 4}
    assert dict(model.hparams_initial) == {"layers": [1, 2]}
    model.hparams_initial.clear()
    assert dict(model.hparams_initial) == {"layers": [1, 2]}
    assert HyperparametersMixin().hparams == {}


@pytest.mark.parametrize("dictionary", [AttributeDict, ReferenceDict])
def test_entries_are_attributes(dictionary: Any) -> None:
    entries = dictionary(a=1, long_name="x")
    entries.b = 2
    del entries["b"]
    assert entries.a == 1
    with pytest.raises(AttributeError, match="missing"):
        _ = entries.missing
    assert repr(entries) == '"a":         1\n"long_name": x'
    assert repr(dictionary()) == ""
    for other in (copy.deepcopy(entries), pickle.loads(pickle.dumps(entries))):
        assert type(other) is dictionary
        assert other == entries


def test_an_attribute_can_be_deleted() -> None:
    entries = AttributeDict(a=1)
    assert "a" in dir(entries)
    del entries.a
    assert entries == {}
    with pytest.raises(AttributeError, match="'a'"):
        del entries.a
