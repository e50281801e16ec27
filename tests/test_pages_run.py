"""The code on the pages about callbacks and loggers runs, as one program for each page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer.side_by_side import loader
from unstuck import LightningModule

PAGES = Path(__file__).parents[1] / "docs"


class Classifier(LightningModule):
    """The module of the pages."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Linear(8, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self.network(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", nn.functional.mse_loss(self.network(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


@pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")
@pytest.mark.parametrize("page", ["callbacks", "loggers"])
def test_code_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (PAGES / f"{page}.md").read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {
        "__name__": "page",
        "Classifier": Classifier,
        "model": Classifier(),
        "train_loader": loader(),
        "val_loader": loader(8, shuffle=False),
    }
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    if page == "callbacks":
        assert "augmentation" in capsys.readouterr().out
    else:
        assert Path(names["csv"].log_dir) == Path("logs/digits/version_0")
        assert (tmp_path / "logs" / "digits" / "version_0" / "metrics.csv").exists()
