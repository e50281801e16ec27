"""Checkpoint files: written whole or not at all, and read with an answer to whatever may be wrong with them."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import socket
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import torch

from unstuck.errors import CheckpointError
from unstuck.messages import rank_zero_warn

__all__ = [
    "HYPERPARAMETERS",
    "exists",
    "filesystem_of",
    "is_remote",
    "is_whole",
    "leads_nowhere",
    "link_file",
    "list_files",
    "load_file",
    "local_path",
    "newest",
    "remove",
    "save_file",
]

HYPERPARAMETERS = "hyper_parameters"
"""The key of the module's hyperparameters."""
# What readers raise at bytes that make no sense to them.
_OF_DAMAGE = (
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AssertionError,
    struct.error,
    zipfile.BadZipFile,
    OSError,
)
_TEMPORARY = ".tmp"
_ARCHIVE = b"PK\x03\x04"
_CHUNK = 2**20
_CHECKPOINT_KEYS = ("state_dict", "pytorch-lightning_version", "global_step", "epoch")


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an address that fsspec opens, such as ``s3://bucket/last.ckpt`` or ``memory://last.ckpt``."""
    text = os.fspath(path)
    return "://" in text and not text.startswith(("file://", "local://"))


def filesystem_of(path: str | os.PathLike[str]) -> Any:
    """The fsspec filesystem of a path.

    Raises:
        CheckpointError: the package for addresses of this kind isn't installed.
    """
    import fsspec  # most programs save on their own disk, and it would cost every one's start

    try:
        return fsspec.core.url_to_fs(os.fspath(path))[0]
    except (ImportError, ValueError) as error:
        raise CheckpointError(f"{os.fspath(path)!r} can't be opened: {error}.") from error


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is a file (or folder)."""
    return bool(filesystem_of(path).exists(os.fspath(path))) if is_remote(path) else os.path.exists(local_path(path))


def list_files(folder: str | os.PathLike[str]) -> list[str]:
    """The paths of what is in a folder; nothing where there is no such folder."""
    text = os.fspath(folder)
    if not is_remote(folder):
        local = local_path(folder)
        return [os.path.join(text, name) for name in sorted(os.listdir(local))] if os.path.isdir(local) else []
    filesystem = filesystem_of(folder)
    if not filesystem.isdir(text):
        return []
    return [f"{text.rstrip('/')}/{path.rsplit('/', 1)[-1]}" for path in filesystem.ls(text, detail=False)]


def remove(path: str | os.PathLike[str]) -> None:
    """Removes a file, the link in place of what it leads to, or a folder. One that isn't there is no error."""
    if is_remote(path):
        filesystem = filesystem_of(path)
        if filesystem.exists(os.fspath(path)):
            filesystem.rm(os.fspath(path), recursive=True)
        return
    target = Path(local_path(path))
    if target.is_dir() and not target.is_symlink():
        filesystem_of(target).rm(str(target), recursive=True)
    else:
        with suppress(FileNotFoundError):
            target.unlink()


def link_file(path: str, link: str) -> None:
    """Makes a symbolic link to a checkpoint, relative, so that the folder can be moved; a copy where links don't exist.

    The name leads to the old or to the new file at any moment.
    """
    if is_remote(path) or is_remote(link):
        filesystem_of(path).copy(path, link)
        return
    target, name = Path(local_path(path)), Path(local_path(link))
    temporary = name.with_name(f".{name.name}.{_writer()}{_TEMPORARY}")
    with suppress(FileNotFoundError):
        temporary.unlink()
    try:
        temporary.symlink_to(os.path.relpath(target, name.parent))
    except (OSError, NotImplementedError):
        shutil.copyfile(target, temporary)
    if name.is_dir() and not name.is_symlink():
        shutil.rmtree(name)
    os.replace(temporary, name)


def leads_nowhere(path: str) -> bool:
    """Whether there is a link of this name, but not what it leads to."""
    return not is_remote(path) and os.path.islink(local_path(path)) and not exists(path)


def is_whole(path: str) -> bool:
    """Whether a local file is a checkpoint that isn't cut off, as far as its end tells."""
    return path.endswith(".ckpt") and not is_remote(path) and zipfile.is_zipfile(local_path(path))


def newest(paths: Iterable[str]) -> str | None:
    """What was written last, of the files that exist and links that lead nowhere; None without one."""
    found = [(_modified(path), index, path) for index, path in enumerate(paths) if exists(path) or leads_nowhere(path)]
    return max(found)[2] if found else None


def _modified(path: str) -> float:
    if not is_remote(path):
        return (os.lstat if leads_nowhere(path) else os.stat)(local_path(path)).st_mtime
    filesystem = filesystem_of(path)
    try:
        return float(filesystem.modified(path).timestamp())
    except (AttributeError, NotImplementedError):
        return 0.0


def local_path(path: str | os.PathLike[str]) -> str:
    """The path on this machine's disk, without ``file://`` before it."""
    text = os.fspath(path)
    return text.partition("://")[2] if text.startswith(("file://", "local://")) else os.path.expanduser(text)


# Writing.


def save_file(checkpoint: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes a checkpoint: whoever looks at the path sees the old file or the new one, whole, at any moment.

    Args:
        checkpoint: what is to be saved. Hyperparameters that can't be pickled are left out with a warning.
        path: a local path or an address for fsspec; folders that are missing are made.

    Raises:
        CheckpointError: it can't be written. A file that was there before is untouched.
    """
    write = _write_remote if is_remote(path) else _write_local
    try:
        _try_to_write(write, checkpoint, path)
    except (pickle.PicklingError, AttributeError, TypeError, NotImplementedError) as error:
        if HYPERPARAMETERS not in checkpoint:
            raise CheckpointError(
                f"The checkpoint {os.fspath(path)!r} holds something that can't be pickled: {error}. Leave it out of"
                " the states that module, callbacks and hooks put in."
            ) from error
        kept = {key: value for key, value in checkpoint.items() if key != HYPERPARAMETERS}
        _try_to_write(write, kept, path)
        rank_zero_warn(
            f"The hyperparameters can't be pickled and are left out of the checkpoint: {error}. Save only plain values:"
            " `self.save_hyperparameters(ignore=[...])`."
        )


def _try_to_write(write: Callable[[dict[str, Any], str], None], checkpoint: dict[str, Any], path: Any) -> None:
    try:
        write(checkpoint, os.fspath(path))
    except OSError as error:
        raise _unwritable(path, error) from error
    except RuntimeError as error:
        # torch's own writer stumbles in its own way when the disk is full.
        reason = error.__context__
        if not isinstance(reason, OSError):
            raise
        raise _unwritable(path, reason) from error


def _unwritable(path: Any, error: Exception) -> CheckpointError:
    reason = str(error).splitlines()[0]
    return CheckpointError(
        f"The checkpoint {os.fspath(path)!r} couldn't be written: {reason}. What was there before is untouched. Check"
        " the space on the disk and the rights on the folder."
    )


def _write_local(checkpoint: dict[str, Any], path: str) -> None:
    target = Path(local_path(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        raise IsADirectoryError(f"{path} is a folder")
    _remove_leftovers(target)
    temporary = target.with_name(f".{target.name}.{_writer()}{_TEMPORARY}")
    try:
        with open(temporary, "wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            # The name must not lead to data that is still on its way to the disk.
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _write_remote(checkpoint: dict[str, Any], path: str) -> None:
    filesystem = filesystem_of(path)
    buffer = io.BytesIO()
    torch.save(checkpoint, buffer)
    # Object stores have no folders; the others want them.
    with suppress(NotImplementedError):
        filesystem.makedirs(os.path.dirname(path), exist_ok=True)
    # What is written in a transaction appears at its end, or never.
    with filesystem.transaction, filesystem.open(path, "wb") as file:
        file.write(buffer.getbuffer())


def _sync_folder(folder: Path) -> None:
    """Makes the new name survive a power failure, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _writer() -> str:
    """Names this process among all that may write into a folder."""
    return f"{socket.gethostname()}-{os.getpid()}"


def _remove_leftovers(target: Path) -> None:
    """Removes what processes of this machine that were killed while writing have left in a folder."""
    prefix = f"{socket.gethostname()}-"
    for leftover in target.parent.glob(f".*{_TEMPORARY}"):
        _, _, process = leftover.name.removesuffix(_TEMPORARY).rpartition(f".{prefix}")
        if process.isdigit() and int(process) != os.getpid() and not _is_running(int(process)):
            with suppress(OSError):
                leftover.unlink()


def _is_running(process: int) -> bool:
    if os.name == "nt":
        # There the number that asks on other systems is a signal.
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OSError):
        return True
    return True


# Reading.


def load_file(
    path: str | os.PathLike[str] | IO[bytes], map_location: Any = None, weights_only: bool | None = None
) -> Any:
    """Reads a checkpoint.

    Args:
        path: a local path, an address for fsspec, or an open file.
        map_location: where tensors go, as for :func:`torch.load`.
        weights_only: whether only tensors and plain values are loaded, which no file can misuse to run code; True
            unless False is asked for.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: it is damaged, no checkpoint, or holds what may only be loaded from a source that is trusted.
    """
    name = "the open file" if not isinstance(path, (str, os.PathLike)) else repr(os.fspath(path))
    with _opened(path) as file:
        _check_start(file, name)
        try:
            _check_sums(file)
            with warnings.catch_warnings():
                # Of other pickles torch warns before it refuses them, which is told below.
                warnings.filterwarnings("ignore", "Detected pickle protocol")
                checkpoint = torch.load(file, map_location=map_location, weights_only=weights_only is not False)
        except pickle.UnpicklingError as error:
            raise _not_plain(file, name, error) from error
        except _OF_DAMAGE as error:
            if "map_location" in str(error):
                raise
            raise _damaged(file, name, error) from error
        except (AttributeError, ImportError) as error:
            raise CheckpointError(
                f"{name} holds an object whose class can't be imported here: {error}. Run this where the program that"
                " wrote it can be imported."
            ) from error
    _check_content(checkpoint, name)
    return checkpoint


@contextmanager
def _opened(path: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    if not isinstance(path, (str, os.PathLike)):
        yield path
        return
    if is_remote(path):
        with _opened_address(os.fspath(path)) as file:
            yield file
        return
    local = local_path(path)
    if os.path.isdir(local):
        raise CheckpointError(
            f"{os.fspath(path)!r} is a folder. A checkpoint is one file (usually *.ckpt); folders that strategies for"
            " several devices write can't be read here."
        )
    if not os.path.exists(local):
        raise FileNotFoundError(f"Checkpoint file not found: {os.fspath(path)}{_neighbours(local)}")
    with open(local, "rb") as file:
        yield file


@contextmanager
def _opened_address(path: str) -> Iterator[IO[bytes]]:
    filesystem = filesystem_of(path)
    if not filesystem.exists(path):
        raise FileNotFoundError(f"Checkpoint file not found: {path}")
    with filesystem.open(path, "rb") as file:
        yield io.BytesIO(file.read())


def _neighbours(path: str) -> str:
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f" (there is no folder {folder})"
    names = sorted(name for name in os.listdir(folder) if name.endswith(".ckpt"))
    return f" (in this folder there are: {', '.join(names[:8])})" if names else " (in this folder there are none)"


def _check_start(file: IO[bytes], name: str) -> None:
    """Tells files that are empty or of another kind by their first bytes."""
    start = file.read(64)
    file.seek(0)
    if not start:
        raise CheckpointError(f"{name} is empty (0 bytes): it was never written to its end. Use an earlier checkpoint.")
    kind = None
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 2**32:
        kind = "a safetensors file; load it with `safetensors.torch.load_file` and `module.load_state_dict`"
    elif _is_text(start):
        kind = f"a text file (it begins with {start[:24]!r})"
    elif start.startswith((b"\x1f\x8b", b"\x89HDF", b"\x89PNG", b"\x93NUMPY", b"BZh", b"GGUF")):
        kind = f"a file of another kind (it begins with {start[:8]!r})"
    if kind is not None:
        raise CheckpointError(f"{name} is no checkpoint but {kind}.")


def _is_text(start: bytes) -> bool:
    """Whether a file begins with readable characters; what torch writes begins with others."""
    return start[0] < 0x80 and all(byte >= 0x20 or byte in b"\t\n\r\f" for byte in start)


def _check_sums(file: IO[bytes]) -> None:
    """Compares the content with its check sums, which torch writes but doesn't look at.

    Raises:
        zipfile.BadZipFile: a part has changed since it was written.
    """
    if file.read(4) != _ARCHIVE:
        file.seek(0)
        return
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
        wrong = [part for part in parts if not _is_intact(archive, part)]
        # Where none is right, torch was told not to compute them.
        if wrong and len(wrong) < len(parts):
            raise zipfile.BadZipFile(f"its part {wrong[0].filename!r} isn't what was written")
    file.seek(0)


def _is_intact(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bool:
    try:
        with archive.open(part) as content:
            while content.read(_CHUNK):
                pass
    except zipfile.BadZipFile:
        return False
    return True


def _damaged(file: IO[bytes], name: str, error: Exception) -> CheckpointError:
    file.seek(0, os.SEEK_END)
    size = file.tell()
    file.seek(0)
    is_archive = file.read(4) == _ARCHIVE
    file.seek(0)
    if is_archive and not zipfile.is_zipfile(file):
        what = f"is cut off: its {size} bytes have no end, so it wasn't written or copied whole"
    elif is_archive:
        what = f"is damaged ({size} bytes)"
    else:
        what = f"isn't a file that torch has written ({size} bytes)"
    # Of these there is only what the reader stumbled over.
    is_told = str(error) and not isinstance(error, (LookupError, TypeError))
    reason = str(error).splitlines()[0] if is_told else "its content makes no sense"
    return CheckpointError(f"{name} {what}: {reason}. Use another checkpoint, or copy this one again.")


def _not_plain(file: IO[bytes], name: str, error: Exception) -> CheckpointError:
    file.seek(0)
    if file.read(4) != _ARCHIVE:
        return _damaged(file, name, error)
    file.seek(0)
    if not zipfile.is_zipfile(file):
        return _damaged(file, name, error)
    names = _unsafe_names(file)
    shown = f": {', '.join(names[:6])}" if names else ""
    if not names and "Unsupported" not in str(error):
        return _damaged(file, name, error)
    return CheckpointError(
        f"{name} holds more than tensors and plain values{shown}. Loading such objects can run any code that is hidden"
        " in the file, so it is done only when asked for: pass `weights_only=False` if you trust where the file comes"
        " from. `self.save_hyperparameters(ignore=[...])` keeps such objects out of new ones."
    )


def _unsafe_names(file: IO[bytes]) -> list[str]:
    find = getattr(torch.serialization, "get_unsafe_globals_in_checkpoint", None)
    if find is None:
        return []
    file.seek(0)
    try:
        return sorted(find(file))
    except Exception:  # noqa: BLE001 - whatever is wrong with the file is told without the names
        return []


def _check_content(checkpoint: Any, name: str) -> None:
    if isinstance(checkpoint, dict) and "state_dict" in checkpoint:
        return
    if isinstance(checkpoint, dict) and checkpoint and all(isinstance(v, torch.Tensor) for v in checkpoint.values()):
        raise CheckpointError(
            f"{name} holds the {len(checkpoint)} tensors of a state_dict, not a checkpoint of a Trainer. Load it by"
            " `module.load_state_dict(torch.load(path))`."
        )
    found = f"a {type(checkpoint).__name__}"
    if isinstance(checkpoint, dict):
        found = f"a dict with the keys {sorted(map(str, checkpoint))[:8]}"
    elif isinstance(checkpoint, torch.nn.Module):
        found = f"a whole module ({type(checkpoint).__name__})"
    raise CheckpointError(
        f"{name} is no checkpoint of a Trainer: expected a dict with the keys {', '.join(map(repr, _CHECKPOINT_KEYS))},"
        f" found {found}."
    )
