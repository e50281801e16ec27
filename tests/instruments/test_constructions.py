"""The lines that made modules and filled parameters, and that constructing is left as it was."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.session.watching import watch
from unstuck.instruments.constructions import Constructions
from unstuck.record.anatomy import Anatomy
from unstuck.signals import Bus
from unstuck.sources.constructions import watch_constructions
from unstuck.sources.patching import Patches

HERE = Path(__file__)
LINES = HERE.read_text().splitlines()


class Block(torch.nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)  # layer
        self.scale = torch.nn.Parameter(torch.ones(2))  # scale
        self.inner = Block(depth - 1) if depth else torch.nn.ReLU()  # inner


class Special(Block):
    def __init__(self) -> None:
        super().__init__(1)
        torch.nn.init.zeros_(self.layer.weight)  # filled
        torch.nn.init.ones_(self.layer.bias.data)  # filled data


@pytest.fixture
def constructions() -> Iterator[Constructions]:
    found = Constructions()
    patches = Patches()
    watch_constructions(patches, Bus([found]))
    yield found
    patches.undo()


def line(mark: str) -> int:
    return next(number for number, text in enumerate(LINES, 1) if text.endswith(f"  # {mark}"))


def test_modules_know_the_line_that_made_them(constructions: Constructions) -> None:
    model = torch.nn.Sequential(
        Special(),  # special
        torch.nn.Sequential(
            torch.nn.Linear(2, 2),  # nested
        ),
    )

    def made(module: torch.nn.Module) -> int:
        chain = constructions.of_module(module)
        assert chain[-1].file == str(HERE)
        return chain[-1].line

    assert made(model[0]) == line("special")
    assert made(model[0].layer) == line("layer")
    assert made(model[0].inner) == line("inner")
    assert made(model[0].inner.inner) == line("inner")
    assert made(model[1][0]) == line("nested")
    assert constructions.of_module(model[0].inner.inner)[-2].line == line("inner")


def test_parameters_know_the_line_that_filled_them_last(constructions: Constructions) -> None:
    model = Special()
    model.inner.layer.weight = model.layer.weight

    def filled(parameter: torch.Tensor) -> int:
        return constructions.of_parameter(parameter)[-1].line

    assert filled(model.layer.weight) == line("filled")
    assert filled(model.layer.bias) == line("filled data")
    assert filled(model.inner.layer.bias) == line("layer")
    assert filled(model.scale) == line("scale")


def test_what_is_gone_or_a_copy_has_no_line(constructions: Constructions) -> None:
    model = Block(0)
    assert constructions.of_module(copy.deepcopy(model)) == ()
    assert constructions.of_parameter(copy.deepcopy(model.scale)) == ()
    remembered = id(model)
    del model
    assert constructions._modules[remembered][0]() is None


def test_everything_is_put_back() -> None:
    before = {name: getattr(torch.nn.init, name) for name in dir(torch.nn.init)}
    init = torch.nn.Module.__init__
    hooks = dict(torch.nn.modules.module._global_parameter_registration_hooks)
    patches = Patches()
    watch_constructions(patches, Bus([Constructions()]))
    assert torch.nn.Module.__init__ is not init
    assert inspect.signature(torch.nn.Module.__init__) == inspect.signature(init)
    patches.undo()
    assert torch.nn.Module.__init__ is init
    assert {name: getattr(torch.nn.init, name) for name in dir(torch.nn.init)} == before
    assert dict(torch.nn.modules.module._global_parameter_registration_hooks) == hooks


def test_random_numbers_and_values_are_those_without_it() -> None:
    torch.manual_seed(3)
    plain, after = Special(), torch.rand(1)
    patches = Patches()
    watch_constructions(patches, Bus([Constructions()]))
    torch.manual_seed(3)
    watched = Special()
    patches.undo()
    assert torch.equal(after, torch.rand(1))
    assert all(torch.equal(*pair) for pair in zip(watched.parameters(), plain.parameters(), strict=True))


def test_an_anatomy_tells_the_lines(tmp_path: Path) -> None:
    watched = watch(
        """
        model = nn.Sequential(
            nn.Linear(3, 4),  # made
            nn.Linear(4, 1),
        )
        nn.init.normal_(model[0].weight, 0.0, 0.1)  # drawn
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 3)).pow(2).mean().backward()
            optimizer.step()
        """,
        tmp_path,
    )
    (anatomy,) = watched.session.recording.all(Anatomy)
    part = next(part for part in anatomy.parts if part.path == "0")
    assert anatomy.chain(part.made_at)[-1].line == watched.line_of("# made")
    assert anatomy.chain(part.filled_at["weight"])[-1].line == watched.line_of("# drawn")
    assert anatomy.chain(part.filled_at["bias"])[-1].line == watched.line_of("# made")
