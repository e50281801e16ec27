"""A small draw of the planted programs as whole scripts under the command. More of them: UNSTUCK_FUZZ_SCRIPTS=40."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trials.tracing.planting import OWN_BACKWARD_LINE
from tests.trials.tracing.test_fuzz import planted

ROOT = Path(__file__).parents[2]
SCRIPTS = int(os.environ.get("UNSTUCK_FUZZ_SCRIPTS", "4"))

SCRIPT = """
import warnings
import torch
from tests.trials.tracing.test_fuzz import planted

warnings.simplefilter("ignore")
program, plant = planted({seed})
weights = list(program.model.parameters())
optimizer = torch.optim.SGD(weights, lr=1e-9)
for step in range(6):
    if step == {bad}:
        loss = program.step()
    else:
        loss = sum(weight.float().pow(2).sum() for weight in weights)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.filterwarnings("ignore:(std|var)\\(\\)")
@pytest.mark.parametrize("seed", [7 + 11 * index for index in range(SCRIPTS)])
def test_the_planted_operation_is_named(seed: int, tmp_path: Path) -> None:
    _, plant = planted(seed)
    bad = seed % 5
    (tmp_path / "train.py").write_text(SCRIPT.format(seed=seed, bad=bad))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "unstuck", "run", "--quiet", "--json", "report.json", "--budget", "0", "train.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["failure"] is None
    where = next(item for item in report["findings"] if item["code"].startswith("numerics"))["where"]
    line = OWN_BACKWARD_LINE if "OwnSqrt" in plant.apply.__code__.co_names else plant.line
    assert (where["op"], where["line"], where["step"]) == (plant.op, line, bad)
    assert Path(where["file"]).name == "planting.py"
