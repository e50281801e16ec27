"""Learning rates in the loggers."""

from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import LearningRateMonitor as Reference

from tests.callbacks.recording_logger import make_logger
from tests.trainer.side_by_side import OURS, THEIRS, Library, base_module, run
from unstuck.callbacks import LearningRateMonitor
from unstuck.errors import MisconfigurationException

pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


def with_optimizers(configure: Any, manual: bool = False) -> Any:
    def make(library: Library) -> Any:
        class Configured(base_module(library)):  # type: ignore[misc]
            def configure_optimizers(self) -> Any:
                return configure(self)

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                loss = super().training_step(batch, batch_idx)
                if manual:
                    for optimizer in self.optimizers():
                        optimizer.step()
                return loss

        module = Configured()
        module.automatic_optimization = not manual
        return module

    return make


def groups(module: Any, *names: str | None) -> list[dict[str, Any]]:
    parameters = list(module.parameters())
    made: list[dict[str, Any]] = [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.5}]
    return [group | ({"name": name} if name else {}) for group, name in zip(made, names, strict=True)]


def sgd_with(name: str | None, interval: str, *of_groups: str | None) -> Any:
    def configure(module: Any) -> Any:
        parameters: Any = groups(module, *of_groups) if of_groups else module.parameters()
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        return [optimizer], [{"scheduler": scheduler, "interval": interval, "name": name}]

    return configure


def two(module: Any) -> Any:
    parameters = list(module.parameters())
    first, second = torch.optim.Adam(parameters[:2], lr=0.1), torch.optim.Adam(parameters[2:], lr=0.2)
    return [first, second], [torch.optim.lr_scheduler.StepLR(second, 1, 0.5)]


CONFIGURATIONS = {
    "no scheduler": (lambda module: torch.optim.Adam(module.parameters(), lr=0.1), False),
    "by epoch": (sgd_with(None, "epoch"), False),
    "by step": (sgd_with(None, "step"), False),
    "named": (sgd_with("rate", "step"), False),
    "two groups": (sgd_with(None, "step", None, None), False),
    "named groups": (sgd_with("rate", "epoch", "body", "head"), False),
    "two optimizers": (two, True),
}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("interval", [None, "step", "epoch"])
def test_same_rows_as_lightning(configuration: str, interval: Any) -> None:
    configure, manual = CONFIGURATIONS[configuration]
    found = []
    for library, cls in ((OURS, LearningRateMonitor), (THEIRS, Reference)):
        logger = make_logger(library)
        monitor = cls(interval, log_momentum=True, log_weight_decay=True)
        outcome = run(
            library,
            with_optimizers(configure, manual),
            max_epochs=3,
            logger=logger,
            log_every_n_steps=2,
            callbacks=[monitor],
        )
        rates = [(step, row) for step, row in logger.rows if not any("loss" in name for name in row)]
        found.append((rates, outcome.metrics, dict(monitor.lrs), monitor.last_momentum_values))
    assert found[0] == found[1]
    assert found[0][0]


def test_what_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match="logging_interval"):
        LearningRateMonitor("batch")  # type: ignore[arg-type]
    with pytest.raises(MisconfigurationException, match="logger"):
        run(OURS, max_epochs=1, callbacks=[LearningRateMonitor()])
    same = with_optimizers(sgd_with(None, "step", "body", "body"))
    with pytest.raises(MisconfigurationException, match="same 'name'"):
        run(OURS, same, max_epochs=1, logger=make_logger(OURS), callbacks=[LearningRateMonitor()])


def test_missing_momentum_is_told() -> None:
    configure = with_optimizers(lambda module: torch.optim.Adagrad(module.parameters(), lr=0.1))
    with pytest.warns(RuntimeWarning, match="no momentum"):
        run(
            OURS,
            configure,
            max_epochs=1,
            logger=make_logger(OURS),
            log_every_n_steps=1,
            callbacks=[LearningRateMonitor(log_momentum=True)],
        )


def test_group_added_meanwhile_gets_a_number() -> None:
    class Growing(base_module(OURS)):  # type: ignore[misc]
        def on_train_epoch_start(self) -> None:
            if self.current_epoch == 1:
                extra = torch.nn.Parameter(torch.zeros(1))
                self.trainer.optimizers[0].add_param_group({"params": [extra], "lr": 0.3})

    monitor, logger = LearningRateMonitor("step"), make_logger(OURS)
    run(
        OURS,
        lambda library: Growing(),
        max_epochs=2,
        logger=logger,
        log_every_n_steps=1,
        callbacks=[monitor],
    )
    assert monitor.lrs == {"lr-Adam/pg1": [0.02] * 12, "lr-Adam/pg2": [0.3] * 6}
