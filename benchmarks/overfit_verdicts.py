"""Verdicts and causes of the overfit test on real data: a sound model and ten faulty variants for each of five sets."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from torch import nn

import unstuck

__all__ = ["CASES", "Case", "Row", "run_case"]

MEMORISED = frozenset({"memorised"})
NOT = frozenset({"not memorised"})
OPEN = frozenset({"memorised", "not memorised", "undecided"})
"""A fault that only slows learning down, or takes a part of the model out: the cause is what counts."""


@dataclass
class Setup:
    """A small program, in parts that a fault can exchange; sound as the data sets make it."""

    body: nn.Module
    head: nn.Module
    inputs: torch.Tensor
    targets: torch.Tensor
    loss_fn: Callable[[Any, Any], torch.Tensor]
    rate: float
    after: list[nn.Module] = field(default_factory=list)
    between: list[nn.Module] = field(default_factory=list)
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    owner: Callable[[nn.Module], nn.Module] | None = None

    def run(self, steps: int = 300) -> unstuck.OverfitResult:
        """Assemble the program and put it to the overfit test."""
        model = nn.Sequential(self.body, *self.between, self.head, *self.after)
        owner = model if self.owner is None else self.owner(model)
        optimizer = self.optimizer(owner.parameters(), lr=self.rate)
        return unstuck.overfit(
            model, (self.inputs, self.targets), self.loss_fn, optimizer, steps=steps, max_seconds=30, progress=False
        )


@dataclass(frozen=True)
class Case:
    """A variant of a program, and what the test has to say of it.

    Attributes:
        data: name of the data set.
        variant: the fault in words, or "sound".
        make: the sound program.
        change: puts the fault in.
        verdicts: those that are right.
        codes: findings of which the first found must be one; empty: no error may be found.
    """

    data: str
    variant: str
    make: Callable[[], Setup]
    change: Callable[[Setup], None]
    verdicts: frozenset[str]
    codes: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """What came of a case."""

    case: Case
    result: unstuck.OverfitResult

    @property
    def first_code(self) -> str:
        """The code of the first finding, or of the first error where nothing is expected."""
        found = [item for item in self.result.findings if self.case.codes or item.severity.value == "error"]
        return found[0].code if found else ""

    @property
    def verdict_right(self) -> bool:
        """Whether the verdict is one of those expected."""
        return self.result.verdict in self.case.verdicts

    @property
    def cause_right(self) -> bool:
        """Whether the first finding is one of those expected, or none where none is."""
        return self.first_code in self.case.codes if self.case.codes else not self.first_code


# --- data sets -------------------------------------------------------------------------------------------------------


def _perceptron(features: int, outputs: int) -> tuple[nn.Module, nn.Module]:
    return nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, outputs)


def _drawn(data: Any, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    order = torch.randperm(len(data.target))[:count]
    return torch.tensor(data.data, dtype=torch.float32)[order], torch.tensor(data.target)[order]


def _standardised(values: torch.Tensor) -> torch.Tensor:
    return (values - values.mean(0)) / values.std(0).clamp_min(1e-6)


def digits() -> Setup:
    """Handwritten digits, ten classes."""
    images, labels = _drawn(load_digits(), 32)
    return Setup(*_perceptron(64, 10), images / 16, labels, nn.CrossEntropyLoss(), 3e-3)


def wine() -> Setup:
    """Wine, three classes, thirteen measurements of very different size."""
    rows, labels = _drawn(load_wine(), 32)
    return Setup(*_perceptron(13, 3), _standardised(rows), labels, nn.CrossEntropyLoss(), 3e-3)


def breast_cancer() -> Setup:
    """Breast cancer, two classes with a single score."""
    rows, labels = _drawn(load_breast_cancer(), 32)
    return Setup(*_perceptron(30, 1), _standardised(rows), labels.float().unsqueeze(1), nn.BCEWithLogitsLoss(), 3e-3)


def diabetes() -> Setup:
    """Diabetes, a regression."""
    rows, progression = _drawn(load_diabetes(), 32)
    target = _standardised(progression.float().unsqueeze(1))
    return Setup(*_perceptron(10, 1), _standardised(rows), target, nn.MSELoss(), 3e-3)


class _Recurrent(nn.Module):
    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, 16)
        self.gru = nn.GRU(16, 64, batch_first=True)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.gru(self.embedding(text))[0]
        return states


class _ClassesFirst(nn.Module):
    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.transpose(1, 2)


def characters() -> Setup:
    """The next character of a text."""
    text = (Path(__file__).parent / "characters.txt").read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    numbers = torch.tensor([alphabet.index(item) for item in text])
    begins = torch.randint(0, len(text) - 25, (8,))
    windows = torch.stack([numbers[begin : begin + 25] for begin in begins.tolist()])
    body, head = _Recurrent(len(alphabet)), nn.Linear(64, len(alphabet))
    return Setup(body, head, windows[:, :-1], windows[:, 1:], nn.CrossEntropyLoss(), 1e-2, [_ClassesFirst()])


# --- faults ----------------------------------------------------------------------------------------------------------


def sound(setup: Setup) -> None:
    """No fault."""


def rate_far_too_low(setup: Setup) -> None:
    """Adam at 1e-7."""
    setup.rate = 1e-7


def rate_far_too_high(setup: Setup) -> None:
    """Adam at 1000."""
    setup.rate = 1e3


def gradient_descent_far_too_fast(setup: Setup) -> None:
    """SGD at 1000."""
    setup.optimizer, setup.rate = torch.optim.SGD, 1e3


def wrong_sign(setup: Setup) -> None:
    """Ascends."""
    inner = setup.loss_fn
    setup.loss_fn = lambda output, target: -inner(output, target)


def zero_init(setup: Setup) -> None:
    """Every weight and bias is 0."""
    for parameter in [*setup.body.parameters(), *setup.head.parameters()]:
        nn.init.zeros_(parameter)


def another_models_parameters(setup: Setup) -> None:
    """The optimiser was made before the model was built anew."""
    setup.owner = copy.deepcopy


def blank_inputs(setup: Setup) -> None:
    """Loading gave only zeros."""
    setup.inputs = torch.zeros_like(setup.inputs)


def tiny_loss(setup: Setup) -> None:
    """The loss is divided by 1e8, for SGD, which doesn't normalise."""
    inner = setup.loss_fn
    setup.loss_fn = lambda output, target: inner(output, target) * 1e-8
    setup.optimizer, setup.rate = torch.optim.SGD, 0.1


def shuffled_targets(setup: Setup) -> None:
    """Targets of other samples: senseless, but can be learnt by heart."""
    setup.targets = setup.targets[torch.randperm(len(setup.targets))]


class _Detached(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.detach()


def detached_body(setup: Setup) -> None:
    """The graph is cut before the head."""
    setup.between = [_Detached()]


def frozen_body(setup: Setup) -> None:
    """Only the head may be trained, the optimiser gets everything."""
    setup.body.requires_grad_(False)


def softmax_before_loss(setup: Setup) -> None:
    """The loss takes scores."""
    setup.after = [*setup.after, nn.Softmax(1)]


def softmax_over_samples(setup: Setup) -> None:
    """Scores of one class compete over the batch."""
    setup.after = [*setup.after, nn.LogSoftmax(0)]
    setup.loss_fn = nn.NLLLoss()


def sigmoid_before_loss(setup: Setup) -> None:
    """The loss takes scores."""
    setup.after = [nn.Sigmoid()]


def softmax_of_one_score(setup: Setup) -> None:
    """Always 1."""
    setup.after = [nn.Softmax(1)]


def relu_at_the_end(setup: Setup) -> None:
    """Standardised targets are negative for one half."""
    setup.after = [nn.ReLU()]


def broadcast_target(setup: Setup) -> None:
    """(samples, 1) against (samples,)."""
    setup.targets = setup.targets.squeeze(1)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return ((output - target) ** 2).mean()

    setup.loss_fn = loss


def dropout_of_nearly_all(setup: Setup) -> None:
    """p = 0.99 taken for the share that is kept."""
    setup.between = [nn.Dropout(0.99)]


def dead_units(setup: Setup) -> None:
    """Biases of -100 in front of the last ReLU."""
    layers = [item for item in setup.body.modules() if isinstance(item, nn.Linear)]
    nn.init.constant_(layers[-1].bias, -100.0)


def conflicting_labels(setup: Setup) -> None:
    """The second half has the first half's inputs, with other labels."""
    half = len(setup.inputs) // 2
    setup.inputs = torch.cat([setup.inputs[:half], setup.inputs[:half]])
    other = (setup.targets[:half] + 1) % (int(setup.targets.max()) + 1)
    setup.targets = torch.cat([setup.targets[:half], other])


def nan_in_an_input(setup: Setup) -> None:
    """One number of one sample is missing."""
    setup.inputs = setup.inputs.clone()
    setup.inputs[3, 2] = torch.nan


def huge_weight_decay(setup: Setup) -> None:
    """Adam with a decay of 100."""
    setup.optimizer = lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr, weight_decay=100.0)


def hundred_fold_weights(setup: Setup) -> None:
    """Initial weights a hundred times too large."""
    with torch.no_grad():
        for parameter in [*setup.body.parameters(), *setup.head.parameters()]:
            parameter.mul_(100.0)


Fault = tuple[Callable[[Setup], None], frozenset[str], tuple[str, ...]]

_LOW: Fault = (rate_far_too_low, NOT, ("optim.lr-too-low",))
_HIGH: Fault = (rate_far_too_high, NOT, ("optim.lr-too-high",))
_FAST: Fault = (gradient_descent_far_too_fast, NOT, ("optim.lr-too-high",))
_SIGN: Fault = (wrong_sign, NOT, ("loss.wrong-sign",))
_ZERO: Fault = (zero_init, NOT, ("model.symmetric-init",))
_OTHER: Fault = (another_models_parameters, NOT, ("optim.stale-parameters", "optim.missing-parameters"))
_BLANK: Fault = (blank_inputs, NOT, ("data.constant-input",))
_TINY: Fault = (tiny_loss, NOT, ("loss.scale", "optim.lr-too-low"))
_SHUFFLED: Fault = (shuffled_targets, MEMORISED, ())
_DETACHED: Fault = (detached_body, OPEN, ("model.no-gradient",))
_FROZEN: Fault = (frozen_body, OPEN, ("model.frozen-parameters",))
_SOFTMAX: Fault = (softmax_before_loss, OPEN, ("loss.activation-mismatch",))
_OVER_SAMPLES: Fault = (softmax_over_samples, NOT, ("loss.wrong-dim", "model.batch-mixing"))
_SIGMOID: Fault = (sigmoid_before_loss, OPEN, ("loss.activation-mismatch",))
_ONE_SCORE: Fault = (
    softmax_of_one_score,
    NOT,
    ("model.output-activation", "loss.wrong-dim", "loss.activation-mismatch"),
)
_RELU: Fault = (relu_at_the_end, NOT, ("model.output-activation",))
_BROADCAST: Fault = (broadcast_target, NOT, ("loss.broadcast",))
_DROPOUT: Fault = (dropout_of_nearly_all, OPEN, ())
_DEAD: Fault = (dead_units, NOT, ("model.dead-units",))
_CONFLICT: Fault = (conflicting_labels, MEMORISED, ("data.conflicting-labels",))
_NAN: Fault = (nan_in_an_input, NOT, ("data.nonfinite-input",))
_DECAY: Fault = (huge_weight_decay, NOT, ("optim.weight-decay",))
_LARGE: Fault = (hundred_fold_weights, OPEN, ("model.bad-init-scale",))

_FAULTS: dict[Callable[[], Setup], Sequence[Fault]] = {
    digits: (_LOW, _HIGH, _SIGN, _ZERO, _OTHER, _BLANK, _SHUFFLED, _SOFTMAX, _OVER_SAMPLES, _CONFLICT),
    breast_cancer: (_LOW, _FAST, _SIGN, _OTHER, _TINY, _SHUFFLED, _SIGMOID, _ONE_SCORE, _DEAD, _NAN),
    diabetes: (_LOW, _HIGH, _ZERO, _DETACHED, _TINY, _SHUFFLED, _RELU, _BROADCAST, _DROPOUT, _DECAY),
    wine: (_FAST, _SIGN, _OTHER, _BLANK, _FROZEN, _SOFTMAX, _DEAD, _NAN, _CONFLICT, _LARGE),
    characters: (_LOW, _HIGH, _SIGN, _ZERO, _OTHER, _BLANK, _DETACHED, _SHUFFLED, _SOFTMAX, _TINY),
}

_SOUND: Fault = (sound, MEMORISED, ())

CASES = tuple(
    Case(make.__name__, change.__name__.replace("_", " "), make, change, verdicts, codes)
    for make, faults in _FAULTS.items()
    for change, verdicts, codes in (_SOUND, *faults)
)
"""All of them: for each data set the sound program first."""


def run_case(case: Case, seed: int = 0) -> Row:
    """Run a case from a seed."""
    torch.manual_seed(seed)
    setup = case.make()
    case.change(setup)
    return Row(case, setup.run())


def main(seeds: Sequence[int] = (0, 1, 2)) -> None:
    """Print every case from every seed, then the rates by data set."""
    torch.set_num_threads(1)
    print(f"{'data':14}{'variant':28}{'verdict':15}{'first finding':28}{'expected':28}{'verdict':8}{'cause':6}  s")
    rows = []
    for case in CASES:
        for seed in seeds:
            begin = time.monotonic()
            row = run_case(case, seed)
            rows.append(row)
            marks = f"{_mark(row.verdict_right):8}{_mark(row.cause_right):6}{time.monotonic() - begin:5.1f}"
            print(
                f"{case.data:14}{case.variant:28}{row.result.verdict:15}{row.first_code or '-':28}"
                f"{' or '.join(case.codes) or '-':28}{marks}",
                flush=True,
            )
    for data in dict.fromkeys(case.data for case in CASES):
        own = [row for row in rows if row.case.data == data]
        verdicts, causes = sum(row.verdict_right for row in own), sum(row.cause_right for row in own)
        print(f"{data:14}verdict right {verdicts}/{len(own)}, cause right {causes}/{len(own)}")


def _mark(right: bool) -> str:
    return "right" if right else "WRONG"
