"""Accumulation that changes with the epoch."""

from typing import Any

import pytest
from lightning.pytorch.callbacks import GradientAccumulationScheduler as Reference

from tests.trainer.side_by_side import OURS, THEIRS, Library, assert_same, base_module, run
from unstuck.callbacks import GradientAccumulationScheduler
from unstuck.errors import MisconfigurationException

pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


@pytest.mark.parametrize("scheduling", [{2: 3}, {0: 2, 1: 4}, {1: 2, 3: 1}, {0: 8}])
def test_same_as_lightning(scheduling: dict[int, int]) -> None:
    ours = run(OURS, max_epochs=5, callbacks=[GradientAccumulationScheduler(dict(scheduling))])
    theirs = run(THEIRS, max_epochs=5, callbacks=[Reference(dict(scheduling))])
    assert_same(ours, theirs)
    own, reference = GradientAccumulationScheduler(dict(scheduling)), Reference(dict(scheduling))
    assert [own.get_accumulate_grad_batches(epoch) for epoch in range(6)] == [
        reference.get_accumulate_grad_batches(epoch) for epoch in range(6)
    ]
    assert own.epochs == reference.epochs
    assert own.going_to_accumulate_grad_batches()


@pytest.mark.parametrize(
    ("scheduling", "error"),
    [({}, TypeError), ({-1: 2}, MisconfigurationException), ({0: 0}, MisconfigurationException)],
)
def test_what_is_refused(scheduling: dict[int, int], error: type[Exception]) -> None:
    with pytest.raises(error):
        GradientAccumulationScheduler(scheduling)


def test_conflicts_are_told() -> None:
    with pytest.raises(ValueError, match="both say"):
        run(OURS, max_epochs=1, accumulate_grad_batches=2, callbacks=[GradientAccumulationScheduler({0: 2})])

    def manual(library: Library) -> Any:
        module = base_module(library)()
        module.automatic_optimization = False
        return module

    with pytest.raises(RuntimeError, match="manual"):
        run(OURS, manual, max_epochs=1, callbacks=[GradientAccumulationScheduler({0: 2})])

    class OwnStep(base_module(OURS)):  # type: ignore[misc]
        def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
            optimizer.step(closure=optimizer_closure)

    with pytest.warns(UserWarning, match="once per optimizer step"):
        run(OURS, lambda library: OwnStep(), max_epochs=1, callbacks=[GradientAccumulationScheduler({0: 2})])
