"""Random programs with a planted bad operation: it, its line and its sample are named; healthy ones give nothing."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import torch

from tests.trials.tracing.planting import BACKWARD, FORWARD, OWN_BACKWARD_LINE, Plant, Program
from unstuck.trials.tracing import OpTrace

pytestmark = pytest.mark.filterwarnings("ignore:(std|var)\\(\\)")
# All of them: UNSTUCK_FUZZ_SEEDS=500.
SEEDS = int(os.environ.get("UNSTUCK_FUZZ_SEEDS", "60"))


def planted(seed: int) -> tuple[Program, Plant]:
    """A program whose loss (or, for a backward plant, a gradient) is really non-finite."""
    rng = random.Random(seed)
    plants = FORWARD + BACKWARD
    for attempt in range(50):
        plant = plants[(seed + attempt * 7) % len(plants)] if attempt else plants[seed % len(plants)]
        program = Program(rng.randrange(2**31), plant)
        loss = program.step()
        if plant.phase == "forward":
            if not torch.isfinite(loss):
                return program, plant
            continue
        if not torch.isfinite(loss):
            continue
        loss.backward()
        bad = any(p.grad is not None and not torch.isfinite(p.grad).all() for p in program.model.parameters())
        program.model.zero_grad(set_to_none=True)
        if bad:
            return program, plant
    raise AssertionError(f"seed {seed}: nothing could be planted")


def missed(seed: int) -> str | None:
    """What a trace of the seed's program named wrongly; None if all is right."""
    program, plant = planted(seed)
    trace = OpTrace(models={"model": program.model}, batch=program.batch, batch_size=program.size)
    with trace:
        loss = program.step()
        loss.backward()
    if plant.phase == "forward":
        origin = trace.origin_of(loss)
    else:
        origin = trace.origin_of_gradient(*program.model.parameters())
    if origin is None:
        return f"{seed}: {plant.op} not found"
    line = OWN_BACKWARD_LINE if "OwnSqrt" in plant.apply.__code__.co_names else plant.line
    got = (origin.phase, origin.op, origin.chain[-1].line, Path(origin.chain[-1].file).name)
    want = (plant.phase, plant.op, line, "planting.py")
    place = (
        f"{seed} {program.wrapping} {program.layout} {program.join} {program.reduction} "
        f"x{tuple(program.batch['x'].shape)}"
    )
    if got != want:
        return f"{place}: {got} instead of {want}"
    module = "planted.1" if program.wrapping == "module" else None
    if origin.module != module:
        return f"{place}: module {origin.module} instead of {module}"
    wanted = program.sample if plant.sample else None
    if plant.sample and origin.sample != wanted:
        return f"{place} {plant.op} {plant.line}: sample {origin.sample} instead of {wanted}"
    return None


def test_planted_operation_is_named() -> None:
    wrong = [text for seed in range(SEEDS) if (text := missed(seed)) is not None]
    assert len(wrong) <= SEEDS // 100, "\n".join(wrong)


def test_kinds_of_operations() -> None:
    assert len({(plant.op, plant.phase) for plant in FORWARD + BACKWARD}) >= 40


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_healthy_program_gives_nothing(first: int) -> None:
    for seed in range(first, min(first + 20, SEEDS)):
        program = Program(seed, None)
        trace = OpTrace(models={"model": program.model}, batch=program.batch, batch_size=program.size)
        with trace:
            loss = program.step()
            loss.backward()
        assert trace.origin_of(loss) is None, seed
        assert trace.origin_of_gradient(*program.model.parameters()) is None, seed


if __name__ == "__main__":
    results = [missed(seed) for seed in range(int(os.environ.get("UNSTUCK_FUZZ_SEEDS", "500")))]
    bad = [text for text in results if text]
    print(*bad, f"{len(results) - len(bad)} of {len(results)} right", sep="\n")  # noqa: T201
