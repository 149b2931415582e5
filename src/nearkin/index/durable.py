"""Files that survive a kill or a power cut: written, synced, and only then named in a manifest that is swapped in one rename.

The folder of an index may be anybody's: nothing in it is removed but regular files that this code wrote, which are listed by name in
the file `lock` before they are written and whose names have our form. A symbolic link is never followed.
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

PATIENCE = 60.0  # seconds a writer waits for another
MANIFEST, LOCK = "manifest.json", "lock"
OURS = re.compile(r"(segment|deleted|structure)-\d{8,}-\d{4,}\.safetensors|\.manifest\.json-\d+")


class IndexDamagedError(ValueError):
    """A file of the index is missing or not what the manifest says; the message names it."""


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """A safetensors file, on disk when this returns; its record for the manifest: name, bytes, sha256."""
    _list_as_ours(path)
    try:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
        set_default_permissions(path)
        sync(path)
    except BaseException:
        path.unlink(missing_ok=True)  # half a file on a full disk only makes it fuller
        raise
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest(path)}


def mapped_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file as views of its memory map: what is not touched is not read.

    Copy on write, since torch wants memory it could write to; the file itself is never changed.
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
    """The file is there and of the right size; with `whole` its content is right, too."""
    path = folder / record["file"]
    if path.stat().st_size != record["bytes"]:
        raise IndexDamagedError(
            f"{path} has {path.stat().st_size:,} bytes where the manifest says {record['bytes']:,}; build the index anew"
        )
    if whole and digest(path) != record["sha256"]:
        raise IndexDamagedError(f"{path} does not match its checksum; build the index anew")


def write_manifest(path: Path, body: Mapping[str, Any]) -> None:
    """Swap the manifest: after a crash there is either the old one or the new one."""
    _list_as_ours(temporary_name(path))
    write_checked_json(path, body)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest's body, if it is whole."""
    body = read_checked_json(path)
    if body is None:
        raise IndexDamagedError(f"{path} is damaged: it does not match its own checksum; build the index anew")
    return body


@contextmanager
def writing(folder: Path, patience: float = PATIENCE) -> Iterator[None]:
    """One writer at a time, across threads and processes; a writer that dies lets go."""
    import fcntl  # not on Windows, where an index can be read but not written

    check_ours(folder)
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


def check_ours(folder: Path) -> None:
    """Refuse to write through a symbolic link, or into a folder that holds somebody else's files and no index."""
    if folder.is_symlink():
        raise ValueError(
            f"{folder} is a symbolic link to {folder.resolve()}; an index is written only to a real folder: move it, or link its parent"
        )
    names = sorted(entry.name for entry in folder.iterdir())
    links = [name for name in names if (folder / name).is_symlink() and (name in (MANIFEST, LOCK) or OURS.fullmatch(name))]
    if links:
        raise ValueError(f"{folder / links[0]} is a symbolic link; the files of an index must be real files: replace it by a copy")
    others = [name for name in names if name not in (MANIFEST, LOCK) and not OURS.fullmatch(name)]
    if others and MANIFEST not in names:
        raise FileExistsError(f"{folder} holds {others[0]!r}, which is no part of an index; choose an empty or a new folder")


def sweep(folder: Path, keep: set[str]) -> None:
    """Remove files of ours that no manifest names: those of older generations, and what a killed writer left behind."""
    left = []
    for name in sorted(set(_listed_as_ours(folder))):
        path = folder / name
        if name not in keep and OURS.fullmatch(name) and path.is_file() and not path.is_symlink():
            with suppress(OSError):
                path.unlink()
        if path.exists():
            left.append(name)
    (folder / LOCK).write_text("".join(f"{name}\n" for name in left), encoding="utf-8")


def _list_as_ours(path: Path) -> None:
    with (path.parent / LOCK).open("a", encoding="utf-8") as file:
        file.write(f"{path.name}\n")


def _listed_as_ours(folder: Path) -> list[str]:
    return (folder / LOCK).read_text(encoding="utf-8", errors="replace").splitlines()
