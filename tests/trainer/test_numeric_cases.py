"""What makes NaN in the cases of plain scripts, in a Trainer's module: the guard names the same line, op and sample."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import unstuck
from unstuck.errors import NonFiniteError
from unstuck.findings import Finding

BATCH, SIZE, BATCHES = 4, 8, 7
SAMPLE = 5
"""The batch and the sample of it that are bad."""


def _tokens(module: Any, x: Tensor, bad: Tensor) -> Tensor:
    """A mean over tokens, of which one batch has none."""
    nll = module.head(x).pow(2).squeeze(1)
    counted = torch.where(bad.any(), torch.zeros_like(nll), torch.ones_like(nll))
    return (nll * counted).sum() / counted.sum()  # TOKENS


def _policy(module: Any, x: Tensor, bad: Tensor) -> Tensor:
    """Advantages are standardised in a minibatch of one."""
    value = module.head(x[:1] if bool(bad.any()) else x).squeeze(1)
    advantage = (value - value.mean()) / (value.std() + 1e-8)  # POLICY
    return (advantage * value).mean()


def _focal(module: Any, x: Tensor, bad: Tensor) -> Tensor:
    """A focal loss with gamma below 1 and a sample that is certain."""
    p = torch.sigmoid(module.head(x).squeeze(1) + bad * 60.0)
    return ((1 - p) ** 0.5 * -torch.log(p)).mean()  # FOCAL


def _edges(module: Any, x: Tensor, bad: Tensor) -> Tensor:
    """An upper clamp that the format can't hold."""
    p = torch.sigmoid(module.head(x).squeeze(1) + bad * 60.0).clamp(1e-8, 1 - 1e-8)
    return -(0.5 * torch.log(p) + 0.5 * torch.log(1 - p)).mean()  # EDGES


def _angles(module: Any, x: Tensor, bad: Tensor) -> Tensor:
    """The angle between directions whose product rounds to more than 1."""
    unit = F.normalize(module.net(x), dim=-1)
    cosine = (unit * unit.detach()).sum(-1) * 0.9
    cosine = torch.where(bad > 0, torch.ones_like(cosine) + 1e-6 + 0 * cosine, cosine)
    return torch.acos(cosine).mean()  # ANGLES


def _mixture(module: Any, x: Tensor, bad: Tensor) -> Tensor:
    """All components of a mixture underflow for one far sample."""
    mean = module.net(x)
    z = (bad * 300.0).unsqueeze(1) - mean
    density = (torch.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)).mean(-1)
    return -torch.log(density).mean()  # MIXTURE


def _paths(module: Any, x: Tensor, bad: Tensor) -> Tensor:
    """Every path of one sample is forbidden; its result is masked out later."""
    score = module.net(x) + torch.where(bad > 0, float("-inf"), 0.0).unsqueeze(1)
    total = torch.logsumexp(score, -1)  # PATHS
    return torch.where(bad > 0, torch.zeros_like(total), total).mean()


@dataclass(frozen=True)
class Case:
    """A loss, the mark of its line, and what the finding says."""

    loss: Callable[[Any, Tensor, Tensor], Tensor]
    mark: str
    code: str
    op: str
    sample: int | None = None


FORWARD, BACKWARD = "numerics.nonfinite-forward", "numerics.nonfinite-backward"
CASES = {
    "mean over no token": Case(_tokens, "TOKENS", FORWARD, "div"),
    "std of one": Case(_policy, "POLICY", FORWARD, "std"),
    "focal loss": Case(_focal, "FOCAL", BACKWARD, "pow", SAMPLE),
    "clamp that does nothing": Case(_edges, "EDGES", FORWARD, "log", SAMPLE),
    "acos of more than 1": Case(_angles, "ANGLES", FORWARD, "acos", SAMPLE),
    "mixture that underflows": Case(_mixture, "MIXTURE", FORWARD, "log", SAMPLE),
    "no path is left": Case(_paths, "PATHS", BACKWARD, "logsumexp", SAMPLE),
}


class Module(unstuck.LightningModule):
    """A network and one of the losses."""

    def __init__(self, loss: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6))
        self.head = nn.Sequential(self.net, nn.Linear(6, 1))
        self.compute = loss

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = self.compute(self, *batch)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def loader(bad: bool) -> DataLoader[Any]:
    x = torch.randn(BATCHES * SIZE, 4, generator=torch.Generator().manual_seed(1))
    mark = torch.zeros(BATCHES * SIZE)
    if bad:
        mark[BATCH * SIZE + SAMPLE] = 1.0
    return DataLoader(TensorDataset(x, mark), batch_size=SIZE)


def trainer(folder: Path, **more: Any) -> unstuck.Trainer:
    return unstuck.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, **more,
    )  # fmt: skip


def check(case: Case, finding: Finding) -> None:
    lines = Path(__file__).read_text().splitlines()
    line = next(index for index, text in enumerate(lines, 1) if text.endswith(f"# {case.mark}"))
    where = finding.where
    assert (finding.code, where.op, where.line) == (case.code, case.op, line), finding
    assert (where.step, where.batch) == (BATCH, BATCH)
    if case.sample is not None:
        assert where.sample == case.sample
    assert where.file == __file__
    assert where.chain[-1].line == line


@pytest.mark.filterwarnings("ignore:std:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_guard_of_the_trainer_names_it(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with pytest.raises(NonFiniteError) as caught:
        trainer(tmp_path, detect_anomaly="replay").fit(Module(case.loss), loader(True))
    assert isinstance(caught.value.finding, Finding)
    check(case, caught.value.finding)


@pytest.mark.parametrize("name", ["std of one", "no path is left"])
def test_a_session_around_the_trainer_names_it(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with unstuck.watch(on_nonfinite="continue") as watch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(tmp_path).fit(Module(case.loss), loader(True))
    # the session reports, so the Trainer doesn't warn
    assert not [item for item in caught if "numerics" in str(item.message)]
    check(case, next(item for item in watch.findings if item.code == case.code))


def _attention(module: Any, x: Tensor, bad: Tensor) -> Tensor:
    """Masked scores are -inf on purpose."""
    score = module.net(x) @ module.net(x).T
    mask = torch.ones_like(score).triu(1).bool()
    return (score.masked_fill(mask, float("-inf")).softmax(-1) @ x).pow(2).mean()


def _sensors(module: Any, x: Tensor, bad: Tensor) -> Tensor:
    """Missing values are NaN on purpose and left out."""
    holes = torch.where(x > 1.0, torch.full_like(x, float("nan")), x)
    return module.head(holes.nan_to_num()).pow(2).mean() + torch.nanmean(holes) * 0


def _best(module: Any, x: Tensor, bad: Tensor) -> Tensor:
    """The best value so far begins at infinity."""
    loss = module.head(x).pow(2).mean()
    module.best = min(getattr(module, "best", float("inf")), float(loss.detach()))
    return loss


@pytest.mark.parametrize("loss", [_attention, _sensors, _best, *(case.loss for case in CASES.values())])
def test_healthy_look_alikes_are_silent(loss: Callable[[Any, Tensor, Tensor], Tensor], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer(tmp_path, detect_anomaly="replay").fit(Module(loss), loader(False))
    assert not (tmp_path / "unstuck-out").exists()


def test_an_eps_that_float16_loses_is_told_after_eight_skipped_steps(tmp_path: Path) -> None:
    def search(module: Any, x: Tensor, bad: Tensor) -> Tensor:
        vectors = module.net(x) * (torch.arange(len(x)) != 0).unsqueeze(1)
        unit = vectors / (vectors.norm(dim=-1, keepdim=True) + 1e-8)  # SEARCH
        return unit.nan_to_num().float().pow(2).mean()

    with pytest.raises(NonFiniteError) as caught:
        trainer(
            tmp_path,
            detect_anomaly="replay",
            precision="16-mixed",
        ).fit(Module(search), _long_loader())
    found = caught.value.finding
    assert isinstance(found, Finding)
    lines = Path(__file__).read_text().splitlines()
    assert found.code == "numerics.low-precision-overflow"
    assert found.where.line == next(index for index, text in enumerate(lines, 1) if text.endswith("# SEARCH"))
    assert (found.where.op, found.where.step, found.where.batch) == ("div", 0, 7)


def _long_loader() -> DataLoader[Any]:
    x = torch.randn(16 * SIZE, 4, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, torch.zeros(len(x))), batch_size=SIZE)
