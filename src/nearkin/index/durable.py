"""Files that survive a kill or a power cut: written, synced, and only then named in a manifest that is replaced in one rename.

The folder of an index may hold files of others: only regular files that this code wrote are removed. They are listed by name in the file
`lock` before they are written, and their names have a fixed form. A symbolic link is never followed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from nearkin.data.disk import (
    FileDamagedError,
    append_line,
    checksums,
    created,
    damage,
    overwrite,
    read_checked_json,
    temporary_name,
    write_checked_json,
)
from nearkin.data.lock import PATIENCE, holder_line, locked

KINDS: dict[str, type] = {"I8": np.int8, "F32": np.float32, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
MANIFEST, LOCK = "manifest.json", "lock"
FIX = "The model is not affected: rebuild the index with `nearkin index DIR DATA --replace`"
FILE_NAME = re.compile(r"(segment|deleted|structure)-\d{8,}-\d{4,}\.safetensors|\.manifest\.json-\d+")


class IndexDamagedError(FileDamagedError):
    """A file of the index is missing or differs from its manifest. The message names it."""


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Write and sync a safetensors file, one array after another; returns its record for the manifest: name, bytes, checksums."""
    if path.exists() and path.name not in _listed_files(path.parent):
        raise FileExistsError(f"{path} is in the way of the index, which did not write it; move it elsewhere")
    _list_file(path)
    names = {np.dtype(kind): name for name, kind in KINDS.items()}
    header, end = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": names[array.dtype], "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that arrays of 8 bytes begin at a multiple of 8
    with created(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return {"file": path.name, **checksums(path)}


def mapped_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file as views of its memory map, which reads only what is used.

    Copy on write, since torch requires writable memory; the file itself is never changed.
    """
    try:
        raw = np.memmap(path, dtype=np.uint8, mode="c")
        length = int.from_bytes(raw[:8].tobytes(), "little")
        header = json.loads(raw[8 : 8 + length].tobytes())
        arrays = {}
        for name, about in header.items():
            if name != "__metadata__":
                start, end = (8 + length + offset for offset in about["data_offsets"])
                arrays[name] = np.asarray(raw[start:end]).view(KINDS[about["dtype"]]).reshape(about["shape"])
        return arrays
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # reachable without verification only
        raise IndexDamagedError(f"{path} is damaged: it is no safetensors file ({error}). {FIX}") from error


def check_record(folder: Path, record: Mapping[str, Any], *, whole: bool = False) -> None:
    """Compare a file with its size and fast checksum in the manifest, and with `whole` with its sha256."""
    path = folder / record["file"]
    found = damage(path, record, whole=whole)
    if found is not None:
        raise IndexDamagedError(
            f"{path} is damaged: it {found}. {FIX}, or restore the file from a copy. --no-verify (verify=False) opens what is there, "
            "which may give wrong neighbors"
        )


def write_manifest(path: Path, body: Mapping[str, Any]) -> None:
    """Replace the manifest; after a crash there is either the old one or the new one."""
    _list_file(temporary_name(path))
    write_checked_json(path, body)


def read_manifest(path: Path) -> dict[str, Any]:
    """The body of the manifest, if it is undamaged."""
    body = read_checked_json(path)
    if body is None:
        raise IndexDamagedError(f"{path} is damaged: it does not match its own checksum. {FIX}")
    return body


@contextmanager
def writing(folder: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Allow one writer of an index at a time; a folder that holds other files and no index is refused."""
    check_folder(folder)
    with locked(folder, patience):
        yield


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
    with suppress(OSError):  # the list only serves to remove what is left
        overwrite(folder / LOCK, "".join(f"{line}\n" for line in (holder_line(), *left)))


def _list_file(path: Path) -> None:
    append_line(path.parent / LOCK, path.name)


def _listed_files(folder: Path) -> list[str]:
    return (folder / LOCK).read_text(encoding="utf-8", errors="replace").splitlines()
