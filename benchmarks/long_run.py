"""A run of 100,000 steps: what its recording takes on disk, how long it is judged, and whether memory grows.

The model has 104 parameters (tensors) and takes steps of about a millisecond, on batches that are drawn anew.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from unstuck.diagnosis import judge
from unstuck.record.recording import RECORDING_NAME, load_recording
from unstuck.session import Ending, Session, SessionOptions

STEPS = 100_000
EARLY = 20_000


def train(steps: int, at: int) -> tuple[int, int]:
    """Train for so many steps; resident memory in bytes after ``at`` of them, and at the end."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(52)))
    for layer in model:
        nn.init.eye_(layer.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    early = 0
    for step in range(steps):
        x = torch.randn(8, 4)
        loss = nn.functional.mse_loss(model(x), 0.5 * x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == at:
            early = _resident()
    return early, _resident()


def _resident() -> int:
    # ru_maxrss would tell the peak, which a later leak may stay below
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Print the figures."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        session = Session(SessionOptions(out=out, budget=0.0, quiet=True))
        session.start()
        begin = time.perf_counter()
        early, late = train(STEPS, EARLY)
        seconds = time.perf_counter() - begin
        verdict = session.finish(Ending("completed"))
        size = (out / RECORDING_NAME).stat().st_size
        recording = load_recording(out / RECORDING_NAME)
        begin = time.perf_counter()
        findings = judge(recording)
        judged = time.perf_counter() - begin
    print(f"{STEPS} steps in {seconds:.0f} s; watching took {100 * (verdict.cost or 0.0):.1f} % of it")
    print(f"recording: {size / 1e6:.1f} MB (at most 20)")
    print(f"judged in {judged:.2f} s (at most 2); {len(findings)} findings")
    print(f"memory: {early / 2**20:.0f} MiB after {EARLY} steps, {late / 2**20:.0f} MiB after {STEPS}")


if __name__ == "__main__":
    main()
