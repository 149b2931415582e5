"""Files that survive a kill or a power cut: written, synced, and only then named in a manifest that is replaced in one rename.

The folder of an index may hold files of others: only regular files that this code wrote are removed. They are listed by name in the file
`lock` before they are written, and their names have a fixed form. A symbolic link is never followed.
"""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from nearkin.data.disk import digest, read_checked_json, set_default_permissions, sync, temporary_name, write_checked_json

PATIENCE = 60.0  # seconds that a writer waits for another one
MANIFEST, LOCK = "manifest.json", "lock"
FILE_NAME = re.compile(r"(segment|deleted|structure)-\d{8,}-\d{4,}\.safetensors|\.manifest\.json-\d+")


class IndexDamagedError(ValueError):
    """A file of the index is missing or differs from its manifest. The message names it."""


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Write and sync a safetensors file; returns its record for the manifest: name, bytes, sha256."""
    _list_file(path)
    try:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
        set_default_permissions(path)
        sync(path)
    except BaseException:
        path.unlink(missing_ok=True)  # a partial file would only fill the disk
        raise
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest(path)}


def mapped_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file as views of its memory map, which reads only what is used.

    Copy on write, since torch requires writable memory; the file itself is never changed.
    """
    raw = np.memmap(path, dtype=np.uint8, mode="c")
    length = int.from_bytes(raw[:8].tobytes(), "little")
    header = json.loads(raw[8 : 8 + length].tobytes())
    kinds = {"F32": np.float32, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
    arrays = {}
    for name, about in header.items():
        if name != "__metadata__":
            start, end = (8 + length + offset for offset in about["data_offsets"])
            arrays[name] = np.asarray(raw[start:end]).view(kinds[about["dtype"]]).reshape(about["shape"])
    return arrays


def check_record(folder: Path, record: Mapping[str, Any], *, whole: bool) -> None:
    """Check that a file is there and has the right size, and with `whole` the right content."""
    path = folder / record["file"]
    if path.stat().st_size != record["bytes"]:
        raise IndexDamagedError(f"{path} has {path.stat().st_size:,} bytes where the manifest says {record['bytes']:,}; rebuild the index")
    if whole and digest(path) != record["sha256"]:
        raise IndexDamagedError(f"{path} does not match its checksum; rebuild the index")


def write_manifest(path: Path, body: Mapping[str, Any]) -> None:
    """Replace the manifest; after a crash there is either the old one or the new one."""
    _list_file(temporary_name(path))
    write_checked_json(path, body)


def read_manifest(path: Path) -> dict[str, Any]:
    """The body of the manifest, if it is undamaged."""
    body = read_checked_json(path)
    if body is None:
        raise IndexDamagedError(f"{path} is damaged: it does not match its own checksum; rebuild the index")
    return body


@contextmanager
def writing(folder: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Allow one writer of an index at a time; a folder that holds other files and no index is refused."""
    check_folder(folder)
    with locked(folder, patience):
        yield


@contextmanager
def locked(folder: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Allow one writer at a time, across threads and processes; the lock of a writer that dies is released."""
    import fcntl  # not available on Windows, where an index can be read but not written

    handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o644)
    try:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise TimeoutError(f"{folder} is being written by another process; waited {patience:.0f} s, try again later") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def check_folder(folder: Path) -> None:
    """Refuse to write through a symbolic link, or into a folder that holds other files and no index."""
    if folder.is_symlink():
        raise ValueError(
            f"{folder} is a symbolic link to {folder.resolve()}; an index is written only to a real folder: move it, or link its parent"
        )
    names = sorted(entry.name for entry in folder.iterdir())
    links = [name for name in names if (folder / name).is_symlink() and (name in (MANIFEST, LOCK) or FILE_NAME.fullmatch(name))]
    if links:
        raise ValueError(f"{folder / links[0]} is a symbolic link; the files of an index must be real files: replace it by a copy")
    others = [name for name in names if name not in (MANIFEST, LOCK) and not FILE_NAME.fullmatch(name)]
    if others and MANIFEST not in names:
        raise FileExistsError(f"{folder} holds {others[0]!r}, which is not part of an index; choose an empty or a new folder")


def sweep(folder: Path, keep: set[str]) -> None:
    """Remove files of the index that the manifest does not name: older generations, and those of a killed writer."""
    left = []
    for name in sorted(set(_listed_files(folder))):
        path = folder / name
        if name not in keep and FILE_NAME.fullmatch(name) and path.is_file() and not path.is_symlink():
            with suppress(OSError):
                path.unlink()
        if path.exists():
            left.append(name)
    (folder / LOCK).write_text("".join(f"{name}\n" for name in left), encoding="utf-8")


def _list_file(path: Path) -> None:
    with (path.parent / LOCK).open("a", encoding="utf-8") as file:
        file.write(f"{path.name}\n")


def _listed_files(folder: Path) -> list[str]:
    return (folder / LOCK).read_text(encoding="utf-8", errors="replace").splitlines()
