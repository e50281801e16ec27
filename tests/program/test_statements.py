"""Statements that wire a training are found in a file's syntax tree."""

from __future__ import annotations

from pathlib import Path

from unstuck.program import statements

PROGRAM = """
import torch
import torch.nn.functional as F
for p in model.parameters():
    p.requires_grad = False
model.head.weight.requires_grad = True
model.body.requires_grad_(train_body)
model.head.requires_grad_()
optimizer.step
optimizer.step()
scheduler.step()
model.eval
with torch.no_grad():
    a = model(x)
    b = a
@torch.inference_mode()
def predict(x):
    return model(x)
with torch.set_grad_enabled(False), open(name) as file:
    c = 1
with torch.set_grad_enabled(True):
    d = 1
h = F.dropout(h, 0.5)
h = F.dropout(h, 0.5, self.training)
h = F.dropout(h, p=0.5, training=self.training)
if self.training:
    h = F.dropout(h)
"""


def test_lines(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    lines = PROGRAM.splitlines()

    def of(*texts: str) -> list[int]:
        return [number for number, line in enumerate(lines, 1) if line.strip() in texts]

    name = str(file)
    assert statements.freezing_lines(name) == of("p.requires_grad = False", "model.body.requires_grad_(train_body)")
    assert statements.uncalled_lines(name) == of("optimizer.step", "model.eval")
    assert statements.optimizer_step_lines(name) == of("optimizer.step()")
    assert statements.constant_dropout_lines(name) == of("h = F.dropout(h, 0.5)")
    assert statements.blocks_without_gradients(name) == [
        (of("with torch.no_grad():")[0], of("b = a")[0]),
        (of("@torch.inference_mode()")[0], of("return model(x)")[0]),
        (of("with torch.set_grad_enabled(False), open(name) as file:")[0], of("c = 1")[0]),
    ]


def test_what_cannot_be_read_has_no_lines(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def (")
    assert statements.freezing_lines(str(broken)) == statements.uncalled_lines(str(tmp_path / "none.py")) == []
