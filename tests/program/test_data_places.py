"""Lines of a program's data are found by following names, and not guessed."""

from __future__ import annotations

from pathlib import Path

from tests.program.marked_program import Program
from unstuck.program.data_places import argument_line, array_source, construction_of, input_source


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
