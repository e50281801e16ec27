"""A recording holds what it was told, on disk too, however the process ends."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from unstuck.errors import RecordError
from unstuck.places import Frame
from unstuck.record.incident import IncidentRecord, UpdateRecord
from unstuck.record.origin import Origin, TensorSummary
from unstuck.record.recording import Recording, load_recording

INCIDENT = IncidentRecord(
    kind="loss",
    step=3,
    batch=2,
    loss=math.nan,
    chain=(Frame("/a/train.py", 5, "main"),),
    origin=Origin(
        "forward", "log", "-inf", (Frame("/a/train.py", 9, "f"),), "head", 4,
        (TensorSummary((2, 3), "float32", 0.0, 1.0, offending=0.0),), (1.5,),
    ),
    replayed=True,
    update=UpdateRecord("w", "float16", 1, 4, 1, "Adam", {"eps": 1e-8}, "addcdiv", state=("exp_avg",)),
)  # fmt: skip


def test_everything_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    recording = Recording(path)
    for step in range(1500):
        recording.add_loss(step, 1.0 / (step + 1))
    recording.add_loss(1500, math.inf)
    recording.add_incident(INCIDENT)
    recording.set_facts({"steps": 1500})
    recording.close()
    again = load_recording(path)
    assert again.incidents[0].origin == INCIDENT.origin
    assert again.incidents[0].update == INCIDENT.update
    assert again.incidents[0].chain == INCIDENT.chain
    assert math.isnan(again.incidents[0].loss or 0.0)
    assert again.losses[-1] == (1500, math.inf) and again.losses[0] == (0, 1.0)
    assert again.facts["steps"] == 1500


def test_a_killed_process_leaves_what_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    program = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from unstuck.record.recording import Recording\n"
        f"recording = Recording(Path({str(path)!r}))\n"
        "for step in range(2000): recording.add_loss(step, 0.5)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert len(load_recording(path).losses) >= 1536


def test_a_last_line_that_is_cut_off_is_ignored_and_a_foreign_file_refused(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    recording = Recording(path)
    recording.add_loss(0, 1.0)
    recording.close()
    with path.open("a") as file:
        file.write('{"event": "losses", "st')
    assert load_recording(path).losses == [(0, 1.0)]
    for text in ("", "not json\nat all\n", '{"format": 999}\n', "[1]\n"):
        path.write_text(text)
        with pytest.raises(RecordError):
            load_recording(path)
    with pytest.raises(RecordError):
        load_recording(tmp_path / "missing.jsonl")


def test_a_full_disk_ends_nothing(tmp_path: Path) -> None:
    recording = Recording(Path("/dev/full"))
    recording.set_facts({"steps": 1})
    recording.add_loss(0, 1.0)
    recording.close()
    assert recording.losses == [(0, 1.0)] and recording.facts == {"steps": 1}


def test_no_torch_is_needed(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['torch'] = None; import unstuck.record.recording, unstuck.diagnosis; print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "fine\n"
