"""Which lines of a file write into tensors by hand, and that training loops don't count."""

from __future__ import annotations

import textwrap
from pathlib import Path

from unstuck.program.fillings import fillings

TEXT = """
def init(layer, p):
    layer.weight.data.fill_(0.5)
    layer.bias.zero_()
    layer.weight[:] = -1
    p.data = torch.zeros(3)
    p *= 0.1
    other = 3
    layer.weight.data[0].normal_(0, 1)


for step in range(10):
    p.data.add_(grad)
    loss.backward()
"""


def test_lines_that_write_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(TEXT))
    found = [(item.line, item.target, item.how, item.number) for item in fillings(str(file))]
    assert found == [
        (3, "weight", "fill", 0.5),
        (4, "bias", "zero", 0.0),
        (5, "weight", "copy", -1.0),
        (6, "p", "copy", None),
        (7, "p", "mult", 0.1),
        (9, "weight", "normal", 0.0),
    ]
    assert {item.function for item in fillings(str(file))} == {"init"}


def test_a_file_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def (:\n")
    assert fillings(str(broken)) == ()
    assert fillings(str(tmp_path / "nowhere.py")) == ()
