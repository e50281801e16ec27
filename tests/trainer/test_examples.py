"""The Trainer's example on real data keeps its promise."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_trainer.py"


@pytest.mark.filterwarnings("ignore:`overfit_batches` turns off the shuffling", "ignore:There is .*validation_step")
def test_digits_are_memorised_and_then_learnt(capsys: pytest.CaptureFixture[str]) -> None:
    specification = importlib.util.spec_from_file_location("digits_trainer", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    memorised, validated = example.main(progress=False)
    assert memorised > 0.999
    assert validated > 0.95
    assert "learnt by heart" in capsys.readouterr().out
