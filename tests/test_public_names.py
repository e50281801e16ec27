"""The public names are frozen: adding one is a decision, removing or renaming one breaks somebody's program."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from unstuck.findings import CODES

PUBLIC: dict[str, set[str]] = {
    "unstuck": {
        "Callback",
        "LightningDataModule",
        "LightningModule",
        "Overfit",
        "OverfitResult",
        "SKIP_STEP",
        "Trainer",
        "__version__",
        "overfit",
        "seed_everything",
        "watch",
    },
    "unstuck.errors": {
        "CheckpointError",
        "IncompleteCheckpointError",
        "MisconfigurationError",
        "MisconfigurationException",
        "MissingHyperparametersError",
        "NameClashError",
        "NonFiniteError",
        "RecordError",
        "ScriptError",
        "UnstuckError",
    },
    "unstuck.testing": {
        "assert_all_parameters_train",
        "assert_finite_training",
        "assert_loss_at_init_near",
        "assert_no_batch_mixing",
        "assert_overfits",
    },
    "unstuck.callbacks": {
        "BackboneFinetuning",
        "BaseFinetuning",
        "BasePredictionWriter",
        "BatchSizeFinder",
        "Callback",
        "Checkpoint",
        "DeviceStatsMonitor",
        "EMAWeightAveraging",
        "EarlyStopping",
        "GradientAccumulationScheduler",
        "GradientMonitor",
        "LambdaCallback",
        "LearningRateFinder",
        "LearningRateMonitor",
        "ModelCheckpoint",
        "ModelSummary",
        "OnExceptionCheckpoint",
        "OverfitVerdict",
        "ProgressBar",
        "RichModelSummary",
        "RichProgressBar",
        "RichProgressBarTheme",
        "StochasticWeightAveraging",
        "TQDMProgressBar",
        "ThroughputMonitor",
        "Timer",
        "WeightAveraging",
    },
    "unstuck.loggers": {
        "CSVLogger",
        "CometLogger",
        "DummyExperiment",
        "DummyLogger",
        "Logger",
        "MLFlowLogger",
        "NeptuneLogger",
        "TensorBoardLogger",
        "WandbLogger",
        "configure_loggers",
        "default_logger",
        "rank_zero_experiment",
    },
    "unstuck.profilers": {
        "AdvancedProfiler",
        "PassThroughProfiler",
        "Profiler",
        "PyTorchProfiler",
        "SimpleProfiler",
        "configure_profiler",
        "profiled",
        "profiled_batches",
    },
    "unstuck.utilities": {
        "AttributeDict",
        "CombinedLoader",
        "grad_norm",
        "isolate_rng",
        "move_data_to_device",
        "rank_zero_debug",
        "rank_zero_info",
        "rank_zero_only",
        "rank_zero_warn",
    },
    "unstuck.findings": {"CODES", "Code", "Finding", "Severity", "Where"},
}

FROZEN_CODES = """
data.nonfinite-input data.unscaled-input data.constant-input data.conflicting-labels data.unstable-sample
data.label-mismatch data.unshuffled data.pairing-broken
model.dead-units model.saturated-units model.frozen-parameters model.no-gradient model.batch-mixing model.input-ignored
model.symmetric-init model.bad-init-scale model.wrong-mode model.norm-misuse model.output-activation
loss.activation-mismatch loss.broadcast loss.wrong-sign loss.disconnected loss.scale loss.wrong-dim
optim.lr-too-high optim.lr-too-low optim.no-zero-grad optim.grad-cleared optim.no-step optim.missing-parameters
optim.stale-parameters optim.schedule-collapse optim.exploding-gradient optim.vanishing-gradient optim.clip-too-tight
optim.clip-ineffective optim.weight-decay optim.bad-hyperparameter
numerics.nonfinite-forward numerics.nonfinite-backward numerics.nonfinite-parameter numerics.low-precision-overflow
numerics.amp-order numerics.scaler-stuck
distributed.rank-divergence distributed.duplicate-data distributed.uneven-batches distributed.unused-parameters
"""


@pytest.mark.parametrize("module", PUBLIC)
def test_names(module: str) -> None:
    loaded = importlib.import_module(module)
    assert set(loaded.__all__) == PUBLIC[module]
    assert all(hasattr(loaded, name) for name in loaded.__all__)


def test_codes_are_only_ever_added() -> None:
    assert set(CODES) >= set(FROZEN_CODES.split())
    assert all(code.name == name and code.meaning for name, code in CODES.items())


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import unstuck; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['__future__', 'unstuck']"
