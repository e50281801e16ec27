"""Checkpoint files: whole or not at all, wherever they are, and with a clear word on what is wrong with others."""

from __future__ import annotations

import io
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from torch import nn

from unstuck.errors import CheckpointError
from unstuck.trainer.checkpoints.files import exists, link_file, list_files, load_file, newest, remove, save_file

KILLS = 20


def checkpoint(value: float = 1.0, size: int = 1000) -> dict[str, Any]:
    return {"state_dict": {"weight": torch.full((size,), value)}, "epoch": int(value), "global_step": 3}


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "a.ckpt"
    save_file(checkpoint(2.0), path)
    loaded = load_file(path)
    assert torch.equal(loaded["state_dict"]["weight"], torch.full((1000,), 2.0))
    assert os.listdir(path.parent) == ["a.ckpt"]
    with open(path, "rb") as file:
        assert load_file(file)["epoch"] == 2
    assert load_file(io.BytesIO(path.read_bytes()))["epoch"] == 2
    assert load_file(f"file://{path}")["epoch"] == 2


def test_rights_of_a_new_file_are_the_usual_ones(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save_file(checkpoint(), tmp_path / "a.ckpt")
    finally:
        os.umask(before)
    assert (tmp_path / "a.ckpt").stat().st_mode & 0o777 == 0o640


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_killed_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    """A process that does nothing but replace a checkpoint is killed again and again."""
    path = tmp_path / "last.ckpt"
    save_file(checkpoint(0.0, 200_000), path)
    dice = random.Random(0)
    seen = set()
    for turn in range(KILLS):
        child = os.fork()
        if child == 0:
            try:
                value = 1000.0 * turn
                while True:
                    value += 1
                    save_file(checkpoint(value, 200_000), path)
            finally:
                os._exit(1)
        time.sleep(dice.uniform(0.002, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        loaded = load_file(path)
        weight = loaded["state_dict"]["weight"]
        assert bool((weight == weight[0]).all()) and int(weight[0]) == loaded["epoch"]
        seen.add(loaded["epoch"])
    assert len(seen) > KILLS // 4
    save_file(checkpoint(), path)
    assert os.listdir(tmp_path) == ["last.ckpt"], "what killed processes left is cleared away"


PROGRAM = """
import sys, torch, warnings
warnings.simplefilter("ignore")
from torch.utils.data import DataLoader, TensorDataset
from unstuck import LightningModule, Trainer
from unstuck.callbacks import ModelCheckpoint

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(300, 300)
    def training_step(self, batch, batch_idx):
        return self.net(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(64, 300)), batch_size=4, shuffle=True)
saver = ModelCheckpoint(
    dirpath=sys.argv[1], every_n_train_steps=1, save_last=True, save_top_k=2, monitor="step", mode="max"
)
Trainer(accelerator="cpu", logger=False, callbacks=[saver], enable_progress_bar=False, enable_model_summary=False,
        max_epochs=-1).fit(Module(), data, ckpt_path=None if len(sys.argv) < 3 else sys.argv[2])
"""


def test_killed_fit_leaves_checkpoints_that_can_be_resumed(tmp_path: Path) -> None:
    folder, program = tmp_path / "saved", tmp_path / "program.py"
    program.write_text(PROGRAM)
    dice = random.Random(1)
    command = [sys.executable, str(program), str(folder)]
    steps = 0
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 120
        while not _has_grown(folder, steps) and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
        time.sleep(dice.uniform(0.0, 0.1))
        process.kill()
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors.decode()
        loaded = [load_file(path) for path in folder.glob("*.ckpt")]
        assert len(loaded) >= 2
        newest_step = max(each["global_step"] for each in loaded)
        assert newest_step > steps
        steps = newest_step
        command = [sys.executable, str(program), str(folder), str(_newest(folder))]


def _newest(folder: Path) -> Path:
    return max(folder.glob("*step=*.ckpt"), key=lambda path: path.stat().st_mtime)


def _has_grown(folder: Path, steps: int) -> bool:
    numbers = [int(path.stem.split("step=")[1].split("-")[0]) for path in folder.glob("*step=*.ckpt")]
    return max(numbers, default=0) > steps + 5


def test_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    save_file(checkpoint(1.0), path)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"couldn't be written.*untouched"):
            save_file(checkpoint(2.0, 100_000), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert load_file(path)["epoch"] == 1
    assert os.listdir(tmp_path) == ["a.ckpt"]


def test_folder_that_cant_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match="couldn't be written"):
        save_file(checkpoint(), tmp_path / "file" / "a.ckpt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match="is a folder"):
        save_file(checkpoint(), tmp_path / "folder")


def test_interrupted_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    class Interrupts:
        def __reduce__(self) -> Any:
            raise KeyboardInterrupt

    path = tmp_path / "a.ckpt"
    save_file(checkpoint(1.0), path)
    with pytest.raises(KeyboardInterrupt):
        save_file({**checkpoint(2.0), "extra": Interrupts()}, path)
    assert load_file(path)["epoch"] == 1
    assert os.listdir(tmp_path) == ["a.ckpt"]


def test_hyperparameters_that_cant_be_pickled_are_left_out(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="hyperparameters can't be pickled"):
        save_file({**checkpoint(), "hyper_parameters": {"f": lambda x: x}}, tmp_path / "a.ckpt")
    assert "hyper_parameters" not in load_file(tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match="can't be pickled"):
        save_file({**checkpoint(), "callbacks": {"x": lambda x: x}}, tmp_path / "b.ckpt")
    assert not (tmp_path / "b.ckpt").exists()


# Elsewhere.


def test_address_of_another_filesystem() -> None:
    path = "memory://checkpoints/a.ckpt"
    save_file(checkpoint(3.0), path)
    assert exists(path) and load_file(path)["epoch"] == 3
    save_file(checkpoint(4.0), path)
    assert load_file(path)["epoch"] == 4
    link_file(path, "memory://checkpoints/last.ckpt")
    assert list_files("memory://checkpoints") == [path, "memory://checkpoints/last.ckpt"]
    assert list_files("memory://nowhere") == []
    assert newest([path, "memory://checkpoints/last.ckpt", "memory://nothing.ckpt"]) is not None
    remove(path)
    assert not exists(path)
    with pytest.raises(FileNotFoundError, match=r"memory://checkpoints/a\.ckpt"):
        load_file(path)


def test_failed_upload_leaves_the_old_file(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "memory://b/a.ckpt"
    save_file(checkpoint(1.0), path)
    memory = fsspec.filesystem("memory")
    opened = memory.open

    def breaks(*args: Any, **kwargs: Any) -> Any:
        file = opened(*args, **kwargs)

        def write(data: Any) -> int:
            io.BytesIO.write(file, bytes(data)[:100])
            raise OSError("connection lost")

        file.write = write
        return file

    monkeypatch.setattr(memory, "open", breaks)
    with pytest.raises(CheckpointError, match="connection lost"):
        save_file(checkpoint(2.0), path)
    monkeypatch.undo()
    assert load_file(path)["epoch"] == 1


def test_unknown_protocol_is_told() -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        load_file("nowhere://x/a.ckpt")


def test_link_leads_to_the_newest_and_can_be_moved(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        save_file(checkpoint(value), tmp_path / "a" / f"{int(value)}.ckpt")
        link_file(str(tmp_path / "a" / f"{int(value)}.ckpt"), str(tmp_path / "a" / "last.ckpt"))
    (tmp_path / "a").rename(tmp_path / "b")
    assert load_file(tmp_path / "b" / "last.ckpt")["epoch"] == 2
    save_file(checkpoint(3.0), tmp_path / "b" / "last.ckpt")
    assert load_file(tmp_path / "b" / "2.ckpt")["epoch"] == 2, "what a link leads to isn't overwritten"
    remove(tmp_path / "b" / "last.ckpt")
    remove(tmp_path / "b" / "last.ckpt")


# What is wrong with a file.


def test_missing_file_names_what_is_there(tmp_path: Path) -> None:
    save_file(checkpoint(), tmp_path / "epoch=3.ckpt")
    with pytest.raises(FileNotFoundError, match=r"last\.ckpt .*epoch=3\.ckpt"):
        load_file(tmp_path / "last.ckpt")
    with pytest.raises(FileNotFoundError, match="no folder"):
        load_file(tmp_path / "nowhere" / "last.ckpt")
    with pytest.raises(CheckpointError, match="is a folder"):
        load_file(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.9, 0.999])
def test_cut_off_file(share: float, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    save_file(checkpoint(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CheckpointError, match=r"0 bytes|cut off|isn't a file that torch") as caught:
        load_file(path)
    assert str(path) in str(caught.value)


def test_flipped_bits(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    save_file(checkpoint(size=5000), path)
    whole = bytearray(path.read_bytes())
    at = whole.index(torch.ones(100).numpy().tobytes())
    whole[at + 50] ^= 0xFF
    path.write_bytes(bytes(whole))
    with pytest.raises(CheckpointError, match="damaged"):
        load_file(path)


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("echo broken into",)


def test_code_in_a_file_isnt_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.save({**checkpoint(), "hyper_parameters": {"a": Evil()}}, tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match=r"posix\.system.*weights_only=False") as caught:
        load_file(tmp_path / "a.ckpt")
    assert "save_hyperparameters(ignore" in str(caught.value)
    with open(tmp_path / "b.ckpt", "wb") as file:
        pickle.dump({**checkpoint(), "a": Evil()}, file)
    with pytest.raises(CheckpointError):
        load_file(tmp_path / "b.ckpt")
    assert "broken into" not in capfd.readouterr().out
    assert load_file(tmp_path / "a.ckpt", weights_only=False)["hyper_parameters"] == {"a": 0}


FOREIGN = {
    "text": (b'{"state_dict": 1}\n', "text file"),
    "safetensors": ((52).to_bytes(8, "little") + b'{"weight": {"dtype": "F32", "shape": [1]}}', "safetensors"),
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "text file"),
    "gzip": (b"\x1f\x8b\x08\x00rest of it", "another kind"),
    "noise": (bytes(range(128, 256)) * 4, "isn't a file that torch"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_file_of_another_kind(kind: str, tmp_path: Path) -> None:
    content, message = FOREIGN[kind]
    (tmp_path / "a.ckpt").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        load_file(tmp_path / "a.ckpt")


def test_what_torch_saved_otherwise(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match=r"2 tensors of a state_dict.*load_state_dict"):
        load_file(tmp_path / "a.pt")
    torch.save({"model": {}, "step": 1}, tmp_path / "b.pt")
    with pytest.raises(CheckpointError, match=r"expected a dict.*found a dict with the keys \['model', 'step'\]"):
        load_file(tmp_path / "b.pt")
    torch.save([1, 2], tmp_path / "c.pt")
    with pytest.raises(CheckpointError, match="found a list"):
        load_file(tmp_path / "c.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(nn.Linear(2, 2), tmp_path / "d.pt")
    with pytest.raises(CheckpointError, match="weights_only=False"):
        load_file(tmp_path / "d.pt")
    with pytest.raises(CheckpointError, match=r"whole module \(Linear\)"):
        load_file(tmp_path / "d.pt", weights_only=False)
