"""The words for an origin: the numbers are in the sentence, and the remedy is that of the operation and its pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trials.tracing.planting import BACKWARD, FORWARD
from tests.trials.tracing.test_fuzz import planted
from unstuck.diagnosis.remedies import advise
from unstuck.record.origin import Origin, TensorSummary
from unstuck.trials.tracing import OpTrace


def tensor(
    low: float | None = 0.5, high: float | None = 1.0, shape: tuple[int, ...] = (4, 3), **more: Any
) -> TensorSummary:
    return TensorSummary(shape, more.pop("dtype", "float32"), low, high, **more)


def origin(op: str, value: str, *inputs: TensorSummary, phase: str = "forward", **more: Any) -> Origin:
    return Origin(phase, op, value, inputs=inputs, **more)


@pytest.mark.parametrize(
    ("argument", "summary"),
    [
        (tensor(0.0, 1.0, offending=0.0), "log of 0 is -inf (its argument goes from 0 to 1)"),
        (tensor(0.0, 0.0, offending=0.0), "log of 0 is -inf (its argument is 0 everywhere)"),
        (tensor(0.0, 0.0, (), offending=0.0), "log of 0 is -inf (its argument is 0)"),
        (tensor(0.0, None, offending=0.0), "log of 0 is -inf (its argument holds no finite number)"),
        (tensor(2.0, 2.0), "log of 2 is -inf"),
        (tensor(2.0, 3.0), "log of numbers from 2 to 3 is -inf"),
        (tensor(None, None), "log of no finite number is -inf"),
    ],
)
def test_a_range_is_told_whole(argument: TensorSummary, summary: str) -> None:
    assert advise(origin("log", "-inf", argument)).summary == summary


@pytest.mark.parametrize(
    ("case", "summary", "remedy"),
    [
        (origin("log", "-inf", tensor(0.0, offending=0.0)), "log of 0 is -inf", "log_softmax"),
        (origin("log", "nan", tensor(-2.0, offending=-1.5)), "negative number (-1.5)", "softplus"),
        (origin("log", "-inf", tensor(0.0, offending=0.0, dtype="bfloat16")), "log of 0", "bfloat16"),
        (origin("log", "nan", tensor(0.0, offending=0.0), phase="backward"), "a mask after it", "torch.where(mask"),
        (origin("sqrt", "inf", tensor(0.0, offending=0.0), phase="backward"), "sqrt met 0", "eps"),
        (origin("sqrt", "nan", tensor(-1e-7, offending=-1e-7)), "-1e-07", "clamp(min=0)"),
        (
            origin("pow", "inf", tensor(0.0, offending=0.0), phase="backward", scalars=(0.5,)),
            "power 0.5",
            "clamp the base",
        ),
        (origin("pow", "inf", tensor(0.0, offending=0.0), scalars=(-1.0,)), "0 to the power -1", "negative power"),
        (origin("pow", "inf", tensor(1.0, 1e30, offending=1e30), scalars=(2.0,)), "overflows at 1e+30", "float32"),
        (origin("div", "nan", tensor(0.0, 0.0, ()), tensor(0.0, 0.0, ())), "mean over nothing", "clamp(min=1)"),
        (
            origin("div", "nan", tensor(0.0, offending=0.0), tensor(0.0, offending=0.0)),
            "0 / 0: normalising a zero vector",
            "eps",
        ),
        (origin("div", "inf", tensor(), tensor(0.0, offending=0.0)), "division by 0 gives inf", "eps"),
        (origin("div", "inf", tensor(), tensor(1e-40, offending=1e-40)), "as small as 1e-40", "clamp the divisor"),
        (
            origin(
                "div", "nan", tensor(dtype="float16"), tensor(0.0, offending=0.0, dtype="float16"), phase="backward"
            ),
            "eps of 1e-8 is 0",
            "float32",
        ),
        (origin("exp", "inf", tensor(0.0, 120.0, offending=120.0)), "exp(120) overflows", "clamp(max="),
        (origin("exp", "inf", tensor(0.0, 20.0, offending=12.0, dtype="float16")), "65504", "bound"),
        (origin("mul", "nan", tensor(0.0), tensor(inf=3), from_infinity=True), "0 * inf", "torch.where"),
        (origin("sub", "nan", tensor(inf=1), tensor(inf=1), from_infinity=True), "inf - inf", "finite number"),
        (origin("softmax", "nan", tensor(None, None, inf=3), from_infinity=True), "all -inf", "unmasked"),
        (origin("logsumexp", "nan", tensor(inf=3), phase="backward", from_infinity=True), "only -inf", "finite score"),
        (origin("std", "nan", tensor(shape=(1,))), "single element (shape 1)", "drop_last"),
        (origin("std", "inf", tensor(0.0, 6e4, dtype="float16")), "overflows", "float32"),
        (origin("mean", "nan", tensor(None, None, (0,))), "empty tensor", "nothing is selected"),
        (origin("acos", "nan", tensor(0.9, 1.0001, offending=1.0000001)), "outside -1..1", "atan2"),
        (origin("acos", "-inf", tensor(0.9, 1.0, offending=1.0), phase="backward"), "acos met 1", "strictly inside"),
        (origin("atan2", "nan", tensor(0.0), tensor(0.0), phase="backward"), "atan2(0, 0)", "keep one argument"),
        (origin("nll_loss", "nan", tensor(), tensor()), "ignore_index", "reduction='sum'"),
        (origin("layer_norm", "nan", tensor(1.0, 1.0)), "constant values", "eps"),
        (origin("linalg_svd", "inf", tensor(), phase="backward"), "equal", "diagonal"),
        (origin("cdist_forward", "inf", tensor()), "overflows", "grow"),
        (origin("cdist", "nan", tensor(), tensor(), phase="backward"), "equal points", "eps"),
        (origin("addmm", "inf", tensor(0.0, 6e4, dtype="float16")), "overflows in float16", "float32"),
        (origin("mm", "inf", tensor(0.0, 3e38)), "mm overflows on numbers of up to 3e+38", "clip gradients"),
        (origin("ctc_loss", "inf", tensor()), "CTC", "zero_infinity"),
        (origin("some_new_op", "nan", tensor()), "some_new_op gives nan", "domain"),
    ],
)
def test_words(case: Origin, summary: str, remedy: str) -> None:
    advice = advise(case)
    assert summary in advice.summary.replace("6.55e+04", "65504")
    assert remedy in advice.remedy


@pytest.mark.parametrize("leaf", ["batch", "parameter", "buffer", "constant"])
def test_words_for_what_was_there_before(leaf: str) -> None:
    advice = advise(Origin("forward", None, "nan", leaf=leaf, leaf_name="stem.weight"))
    assert "nan" in advice.summary
    assert ("stem.weight" in advice.summary) == (leaf != "constant")
    assert advice.remedy


@pytest.mark.filterwarnings("ignore:(std|var)\\(\\)")
def test_every_planted_operation_has_words_of_its_own() -> None:
    for seed in range(len(FORWARD + BACKWARD)):
        program, plant = planted(seed)
        trace = OpTrace(batch=program.batch, batch_size=program.size)
        with trace:
            loss = program.step()
            loss.backward()
        found = trace.origin_of(loss) or trace.origin_of_gradient(*program.model.parameters())
        assert found is not None
        advice = advise(found)
        assert "keep them in the operation's domain" not in advice.remedy, (plant.op, plant.line)
        assert not any(word in advice.summary for word in ("None", "its input")), advice.summary
