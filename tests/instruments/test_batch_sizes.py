"""How many samples each pass of a model with batch normalisation was given."""

from __future__ import annotations

from pathlib import Path

from tests.session.watching import watch
from unstuck.record.batch_sizes import BatchSizes

PROGRAM = """
model = nn.Sequential(nn.Linear(3, 4), {norm}, nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(70, 3)
for epoch in range(4):
    model.train()
    for rows in torch.arange(70).split(16):
        loss = model(x[rows]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        model(x)
"""


def test_sizes_of_passes_with_their_steps(tmp_path: Path) -> None:
    run = watch(PROGRAM.format(norm="nn.BatchNorm1d(4)"), tmp_path)
    (sizes,) = run.session.recording.all(BatchSizes)
    assert sizes.kind == "Sequential"
    assert sizes.counts == {16: 16, 6: 4}
    assert sizes.passes == 20
    assert sizes.usual == 16
    assert sizes.steps[6] == [4, 9, 14, 19]


def test_models_without_batch_normalisation_are_not_counted(tmp_path: Path) -> None:
    run = watch(PROGRAM.format(norm="nn.LayerNorm(4)"), tmp_path)
    assert run.session.recording.all(BatchSizes) == []
    assert not run.session._batch_sizes.wants_calls
