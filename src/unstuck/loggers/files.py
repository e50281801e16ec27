"""Files of a run, on the local disk or wherever fsspec reaches.

On the local disk an appended text is one write, and a replaced file is either the old or the new one, also when the
process is killed meanwhile. Object stores know no append; there the object is written anew as a whole, which they do
atomically.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

__all__ = ["append_text", "filesystem_of", "join", "next_version", "read_text", "replace_text"]


def filesystem_of(path: str) -> tuple[Any, str]:
    """Return fsspec's file system of ``path`` and the path in it."""
    filesystem, inner = fsspec.core.url_to_fs(path)
    return filesystem, str(inner)


def join(directory: str, *names: str) -> str:
    """Join names to a directory, which may be a URL."""
    return posixpath.join(directory, *names) if "://" in directory else os.path.join(directory, *names)


def next_version(root_dir: str) -> int:
    """Return the smallest number greater than that of every ``version_<number>`` directory in ``root_dir``."""
    filesystem, root = filesystem_of(root_dir)
    if not filesystem.isdir(root):
        return 0
    names = (
        posixpath.basename(entry["name"].replace(os.sep, "/").rstrip("/")) for entry in _directories(filesystem, root)
    )
    numbers = [int(match.group(1)) for match in map(re.compile(r"version_(\d+)").fullmatch, names) if match]
    return max(numbers, default=-1) + 1


def read_text(path: str) -> str:
    """Return the content of a file, empty when there is none."""
    filesystem, inner = filesystem_of(path)
    try:
        content: bytes = filesystem.cat_file(inner)
    except FileNotFoundError:
        return ""
    return content.decode("utf-8")


def append_text(path: str, text: str) -> None:
    """Append ``text`` to a file, making it and its directory if need be."""
    filesystem, inner = filesystem_of(path)
    if not isinstance(filesystem, LocalFileSystem):
        replace_text(path, read_text(path) + text)
        return
    os.makedirs(os.path.dirname(inner) or ".", exist_ok=True)
    descriptor = os.open(inner, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        _write_all(descriptor, text.encode("utf-8"))
    finally:
        os.close(descriptor)


def replace_text(path: str, text: str) -> None:
    """Give a file a new content, making it and its directory if need be."""
    filesystem, inner = filesystem_of(path)
    content = text.encode("utf-8")
    if not isinstance(filesystem, LocalFileSystem):
        filesystem.makedirs(posixpath.dirname(inner), exist_ok=True)
        filesystem.pipe_file(inner, content)
        return
    os.makedirs(os.path.dirname(inner) or ".", exist_ok=True)
    draft = f"{inner}.{os.getpid()}.draft"
    with open(draft, "wb") as file:
        file.write(content)
    os.replace(draft, inner)


def _directories(filesystem: Any, root: str) -> list[dict[str, Any]]:
    # A listing that fsspec has cached wouldn't show what another process has made.
    filesystem.invalidate_cache()
    return [entry for entry in filesystem.ls(root, detail=True) if entry["type"] == "directory"]


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
