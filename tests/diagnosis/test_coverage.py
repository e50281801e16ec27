"""Checks that had nothing to look at are told, and told apart from gaps."""

from __future__ import annotations

from pathlib import Path

from tests.session.watching import watch
from unstuck.diagnosis.coverage import had_nothing_to_see, unseen
from unstuck.record.anatomy import Anatomy
from unstuck.session import SessionOptions

PROGRAM = """
model = nn.Sequential(nn.Linear(3, 4), {activation}, nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range({steps}):
    optimizer.zero_grad()
    model(torch.randn(8, 3)).pow(2).mean().backward()
    optimizer.step()
"""


def phrases(folder: Path, activation: str, steps: int) -> list[str]:
    run = watch(PROGRAM.format(activation=activation, steps=steps), folder, SessionOptions(budget=0))
    return unseen(run.session.recording.all(Anatomy))


def test_what_had_nothing_to_look_at(tmp_path: Path) -> None:
    relu = phrases(tmp_path, "nn.ReLU()", 20)
    tanh = phrases(tmp_path, "nn.Tanh()", 4)
    assert [phrase.partition(":")[0] for phrase in relu] == ["saturated units", "normalisation"]
    assert [phrase.partition(":")[0] for phrase in tanh] == ["dead units", "normalisation", "units that begin alike"]
    assert [had_nothing_to_see(phrase) for phrase in tanh] == [True, True, True]
    assert unseen([]) == []
