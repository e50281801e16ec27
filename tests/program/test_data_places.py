"""Lines of a program's data are found by following names, and not guessed."""

from __future__ import annotations

import importlib.util
import linecache
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from unstuck.places import Frame
from unstuck.program.data_places import (
    argument_line,
    array_source,
    collate_sort,
    construction_of,
    input_source,
    item_lines,
    separate_shuffles,
)


class Program:
    """A file with its lines found by their marks."""

    def __init__(self, folder: Path, text: str) -> None:
        self.file = folder / "train.py"
        self.file.write_text(textwrap.dedent(text))
        linecache.checkcache(str(self.file))

    def line(self, mark: str) -> int:
        return next(n for n, text in enumerate(self.file.read_text().splitlines(), 1) if text.endswith(f"# {mark}"))

    def frame(self, mark: str) -> Frame:
        return Frame(str(self.file), self.line(mark), "<module>")

    def module(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"data_places_{abs(hash(str(self.file)))}", self.file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def test_inputs_are_followed_through_conversions_to_the_return_that_made_them(tmp_path: Path) -> None:
    program = Program(
        tmp_path,
        """
        def read():
            rows, kinds = load()
            return rows, kinds  # made

        x, y = read()
        x = torch.tensor(x).float()
        data = TensorDataset(torch.as_tensor(x, dtype=torch.float32), torch.tensor(y))  # constructed
        loader = DataLoader(data, batch_size=4)  # loader
        """,
    )
    found = input_source(program.frame("loader"), "TensorDataset")
    assert found is not None and found.line == program.line("made") and found.function == "read"
    built = construction_of(program.frame("loader"), "TensorDataset")
    assert built is not None and built.line == program.line("constructed")


def test_a_dataset_is_found_behind_subsets_functions_and_attributes(tmp_path: Path) -> None:
    program = Program(
        tmp_path,
        """
        def make():
            whole = Pictures(10)  # constructed
            return Subset(whole, range(4))

        class Runner:
            def __init__(self):
                self.few = make()

            def run(self):
                return DataLoader(
                    self.few,
                    batch_size=2,
                )  # loader
        """,
    )
    found = construction_of(program.frame("loader"), "Pictures")
    assert found is not None and found.line == program.line("constructed")
    assert construction_of(program.frame("loader"), "Others") is None


def test_lines_of_a_dataset(tmp_path: Path) -> None:
    program = Program(
        tmp_path,
        """
        import random

        class Drawn:
            def __init__(self, makers):
                self.makers = [lambda: maker for maker in makers]  # late

            def __getitem__(self, index):
                kind = index % 2  # target
                value = self.makers[index]()  # item
                if random.random() < 0.5:  # random
                    value = -value
                return value, kind

        class Stored:
            def __init__(self, count):
                self.store = []
                for place in range(count):
                    self.store.append(place)  # filled

            def __getitem__(self, index):
                return {"input": self.store[0], "kind": index}  # fixed

        class Bound:
            def __init__(self, makers):
                self.makers = [lambda maker=maker: maker for maker in makers]

            def __getitem__(self, index):
                return self.makers[index]()
        """,
    )
    module = program.module()
    drawn = item_lines(module.Drawn([1, 2]))
    assert drawn.late is not None and drawn.late.line == program.line("late")
    assert drawn.random is not None and drawn.random.line == program.line("random")
    assert drawn.target is not None and drawn.target.line == program.line("target")
    assert drawn.indexed
    stored = item_lines(module.Stored(3))
    assert stored.item is not None and stored.item.line == program.line("fixed")
    assert stored.source is not None and stored.source.line == program.line("filled")
    assert stored.random is None and stored.late is None
    assert item_lines(module.Bound([1])).late is None
    assert item_lines([1, 2, 3]).item is None


def test_what_a_model_is_given_without_a_loader(tmp_path: Path) -> None:
    program = Program(
        tmp_path,
        """
        table = read_csv()  # made
        for start in range(0, 100, 10):
            rows = table[start : start + 10]  # rows
            loss = criterion(model(rows), target)  # call
        """,
    )
    rows, made = argument_line(program.frame("call")), array_source(program.frame("call"))
    assert rows is not None and rows.line == program.line("rows")
    assert made is not None and made.line == program.line("made")


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("x = x[torch.randperm(9)]  # one\ny = y[torch.randperm(9)]  # two\n", ["one", "two"]),
        ("np.random.shuffle(x)  # one\nnp.random.shuffle(y)  # two\n", ["one", "two"]),
        ("a = rng.permutation(9)\nb = rng.permutation(9)\nx = x[a]  # one\ny = y[b]  # two\n", ["one", "two"]),
        ("order = torch.randperm(9)\nx = x[order]\ny = y[order]\n", []),
        ("x = x[torch.randperm(9)]\n", []),
        ("def f(x):\n    return x[torch.randperm(9)]\ndef g(y):\n    return y[torch.randperm(9)]\n", []),
    ],
)
def test_arrays_that_are_shuffled_by_orders_of_their_own(tmp_path: Path, text: str, marks: list[str]) -> None:
    program = Program(tmp_path, text)
    assert [frame.line for frame in separate_shuffles(str(program.file))] == [program.line(mark) for mark in marks]


def test_a_collate_function_that_sorts(tmp_path: Path) -> None:
    program = Program(
        tmp_path,
        """
        def join(batch):
            words = sorted(batch)  # sorts
            return words

        def plain(batch):
            return list(batch)
        """,
    )
    module = program.module()
    found = collate_sort(module.join)
    assert found is not None and found.line == program.line("sorts")
    assert collate_sort(module.plain) is None and collate_sort(None) is None
