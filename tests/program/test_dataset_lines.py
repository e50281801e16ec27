"""Lines of the user's own dataset and collate function are found."""

from __future__ import annotations

from pathlib import Path

from tests.program.marked_program import Program
from unstuck.program.dataset_lines import collate_sort, item_lines


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
