"""What a training loop really received: inputs, targets, their order, and what comes again. Plain data, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from unstuck.places import Frame

__all__ = [
    "BatchesRecord",
    "ConfusedPair",
    "IndexPart",
    "InputPart",
    "LagPart",
    "LoaderPart",
    "OrderPart",
    "PairPart",
    "PairingProbe",
    "ScaleProbe",
    "TargetPart",
]


@dataclass
class LoaderPart:
    """The loader that gave the batches.

    Attributes:
        made_at: the user's lines that constructed it.
        dataset: class name of the dataset behind all subsets.
        size: samples that it gives in an epoch, None if unknown.
        base_size: samples of the dataset behind all subsets.
        batches: batches of an epoch.
        batch_size: None if unknown.
        sampler: class name.
        in_order: whether it goes through the dataset in its order.
        iterations: iterations that were begun.
        drawn_at: the user's lines that drew a batch.
        dataset_at: line that constructed the dataset.
        item_at: line of the dataset's ``__getitem__`` that makes a sample.
        target_at: line of it that makes a sample's target.
        indexed: whether the line of ``item_at`` reads the index.
        random_at: line of it that draws random numbers itself.
        collate_at: line of the function that joins samples to batches that sorts something.
        late_at: line of a function that is made in a loop and reads the loop's variable when it is called.
        source_at: line at which the dataset's inputs come into being.
    """

    made_at: tuple[Frame, ...] = ()
    dataset: str = ""
    size: int | None = None
    base_size: int | None = None
    batches: int | None = None
    batch_size: int | None = None
    sampler: str = ""
    in_order: bool = False
    iterations: int = 0
    drawn_at: tuple[Frame, ...] = ()
    dataset_at: Frame | None = None
    item_at: Frame | None = None
    target_at: Frame | None = None
    indexed: bool = True
    random_at: Frame | None = None
    collate_at: Frame | None = None
    late_at: Frame | None = None
    source_at: Frame | None = None


@dataclass
class InputPart:
    """What the first module of a pass was called with.

    Attributes:
        shape: of the first tensor.
        dtype: of the first tensor.
        looks: batches that were looked at.
        low: smallest element.
        high: largest element.
        features: columns of a table (two dimensions); 1 for all other inputs, which are taken together.
        rms: root mean square per feature.
        std: standard deviation per feature.
        constant: looks at which all samples were the same, of those with at least two.
        compared: looks with at least two samples.
        again: looks at which the batch was the very first one again.
        distinct: different samples among those remembered.
        spread: deviation between the samples of a batch, averaged over their elements, over the size of the elements.
        discrete: whether the inputs take so few values that equal samples are to be expected.
        read_at: the user's lines that called the first module.
    """

    shape: tuple[int, ...] = ()
    dtype: str = ""
    looks: int = 0
    low: float = float("inf")
    high: float = float("-inf")
    features: int = 1
    rms: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)
    constant: int = 0
    compared: int = 0
    again: int = 0
    distinct: int = 0
    spread: float = 0.0
    discrete: bool = False
    read_at: tuple[Frame, ...] = ()


@dataclass
class TargetPart:
    """What the loss compared with.

    Attributes:
        kind: the loss, as :class:`unstuck.measure.graph_loss.GraphLoss` names it.
        dtype: of the target.
        shape: of the target.
        looks: batches that were looked at.
        given: whether it is a tensor of the loader's batch; None without a loader.
        whole: whether the loss was reduced to one number by itself, without weights for single samples.
        single: whether the total held no other loss of this sort.
        integral: whether all values were whole numbers.
        low: smallest value.
        high: largest value.
        classes: outputs of the head, for class ids.
        ignored: class id that doesn't count.
        counts: how often each class id or value was seen; empty for many values.
        many: whether there were too many values to count.
        outside: values outside of 0..1, for losses that want probabilities.
        positions: whether class ids were the samples' places in the batch.
        values: values that were looked at.
        mean: of the values.
        variance: of the values, by column and averaged.
    """

    kind: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    looks: int = 0
    given: bool | None = None
    whole: bool = True
    single: bool = True
    integral: bool = True
    low: float = float("inf")
    high: float = float("-inf")
    classes: int | None = None
    ignored: int | None = None
    counts: dict[int, int] = field(default_factory=dict)
    many: bool = False
    outside: int = 0
    positions: bool = False
    values: int = 0
    mean: float = 0.0
    variance: float = 0.0


@dataclass
class OrderPart:
    """In which order class ids came.

    Attributes:
        batches: batches of at least four samples, in the order in which they came.
        one_class: of these, batches in which one class had nearly all samples.
        classes: classes that had such a batch.
        changes: times at which such a batch had another class than the one before.
        epochs: passes over the data that were seen.
        repeated: of the batches after the first pass, the part that had the class that the first pass had there.
        rise: rank correlation of the place in the epoch with the target's batch mean, over the first epoch.
        inner: spread of targets within batches over that of all.
        before: typical loss of the last batch before a change of class.
        after: of the first one after it.
    """

    batches: int = 0
    one_class: int = 0
    classes: int = 0
    changes: int = 0
    epochs: int = 0
    repeated: float = 0.0
    rise: float = 0.0
    inner: float = 1.0
    before: float | None = None
    after: float | None = None


@dataclass
class PairPart:
    """Inputs that came again, and their targets.

    Attributes:
        inputs: different inputs.
        samples: samples that were looked at.
        again: samples whose input had been seen before.
        changed: of these, samples with another target than the first one.
        chance: how often two targets taken at random are equal.
        even: whether all inputs came about equally often.
        copies: inputs that came more than once within one pass over the data.
        torn: of the inputs, those with different targets within one pass over the data, or, where passes aren't known,
            over the run.
        torn_samples: samples whose input is such a one.
        floor: smallest mean loss in nats that these different targets allow, for class ids.
        moved: looks at which targets stood beside other inputs of the same batch than the loader had given them with.
        compared: looks at which that could be told.
        closed: part of the samples of ``again`` whose target had been seen before, with whatever input.
        row: an input that was given with different targets: (position of one, of another, their targets).
    """

    inputs: int = 0
    samples: int = 0
    again: int = 0
    changed: int = 0
    chance: float = 0.0
    even: bool = False
    copies: int = 0
    torn: int = 0
    torn_samples: int = 0
    floor: float = 0.0
    moved: int = 0
    compared: int = 0
    closed: float = 0.0
    row: tuple[int, int, int, int] | None = None


@dataclass
class IndexPart:
    """Samples of a dataset by their index.

    Attributes:
        indices: different indices.
        again: samples whose index had been given before.
        same: of these, samples with the same input as before.
        same_target: of these, samples with the same target as before.
        turned: pairs of samples of one index that are, but for a small shift, the same image turned, by how.
        upright: pairs that are the same image as it was.
        apart: of the turned pairs, those whose target, an image as well, was not turned with it.
        together: those whose target was turned with it.
    """

    indices: int = 0
    again: int = 0
    same: int = 0
    same_target: int = 0
    turned: dict[str, int] = field(default_factory=dict)
    upright: int = 0
    apart: int = 0
    together: int = 0


@dataclass
class LagPart:
    """Token ids in, token ids as target: by how many places the target is the input moved on.

    Attributes:
        looks: batches that were looked at.
        length: tokens of an input.
        shares: by places, the part of the target's tokens that are the input's so many places later.
        skipped: outputs that were cut off at the beginning before the loss.
        inputs: tensors of token ids that the model was given.
        causal: whether outputs depend on no later token, as an experiment showed; None where it wasn't made.
        direct: whether outputs depend on the token at their own place.
    """

    looks: int = 0
    length: int = 0
    shares: dict[int, float] = field(default_factory=dict)
    skipped: int = 0
    inputs: int = 1
    causal: bool | None = None
    direct: bool | None = None


@dataclass
class ConfusedPair:
    """Two classes that the model took for each other on training batches late in the run.

    Attributes:
        a, b: class ids.
        samples: samples of both.
        wrong: of these, taken for the other one.
        sure: mean probability of the chosen class for these samples.
    """

    a: int
    b: int
    samples: int
    wrong: int
    sure: float


@dataclass
class ScaleProbe:
    """A linear model on standardised inputs, fitted to half of the samples that were kept and tried on the others.

    Attributes:
        samples: how many were kept.
        loss: on the other half: nats for class ids, mean square for numbers.
        skill: accuracy above that of the most frequent class, over what is left to gain; or R squared.
    """

    samples: int
    loss: float
    skill: float


@dataclass
class PairingProbe:
    """How well targets can be told from inputs as they were paired, and as they could be.

    Attributes:
        samples: pairs that were looked at.
        skill: of the neighbours' targets for a sample's own: 0 is chance, 1 is perfect.
        other: the best among other pairings.
        pairing: what that other pairing is: ``moved by 1``, ``in the dataset's own order``.
        noise: the largest skill among random pairings.
        named: what the other pairing is made of, for the reader.
    """

    samples: int
    skill: float
    other: float | None = None
    pairing: str = ""
    noise: float = 0.0
    named: str = ""


@dataclass
class BatchesRecord:
    """Batches of one backward call of the program.

    Attributes:
        passes: times that it was made.
        looks: of these, times that were looked at.
        first_step: step of the first look.
        loss_at: the user's lines of the backward call.
        confused: pairs of classes.
        right: share of samples that were classified rightly late in the run; None if unknown.
        shuffles: lines of the program that shuffle inputs and targets by themselves.
        evaluated: whether a loader other than this one gave batches.
        source_at: without a loader, the line at which the inputs come into being.
        rows_at: without a loader, the line that takes a batch's inputs from them.
    """

    passes: int = 0
    looks: int = 0
    first_step: int = 0
    loss_at: tuple[Frame, ...] = ()
    loader: LoaderPart | None = None
    inputs: InputPart = field(default_factory=InputPart)
    target: TargetPart | None = None
    order: OrderPart = field(default_factory=OrderPart)
    pairs: PairPart = field(default_factory=PairPart)
    index: IndexPart | None = None
    lag: LagPart | None = None
    confused: list[ConfusedPair] = field(default_factory=list)
    right: float | None = None
    scale: ScaleProbe | None = None
    pairing: PairingProbe | None = None
    shuffles: tuple[Frame, ...] = ()
    evaluated: bool = False
    source_at: Frame | None = None
    rows_at: Frame | None = None
