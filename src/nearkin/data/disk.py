"""Files that survive a kill or a power cut: synced to the disk, checksummed, and swapped in one rename."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def sync(path: Path) -> None:
    """A file's content, or the names in a folder, are on the disk when this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def as_new(path: Path) -> None:
    """The permissions of any new file of this folder: safetensors writes for the owner alone, and others may have to load it."""
    probe = path.with_name(f".{path.name}-{os.getpid()}-new")
    probe.touch()
    mode = probe.stat().st_mode
    probe.unlink()
    path.chmod(mode & 0o777)


def digest(path: Path) -> str:
    """The sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def aside_of(path: Path) -> Path:
    """Where a page is written before it is put in its place."""
    return path.with_name(f".{path.name}-{os.getpid()}")


def write_page(path: Path, body: Mapping[str, Any]) -> None:
    """JSON that carries its own checksum, swapped in one rename: after a crash there is the old page or the new one."""
    aside = aside_of(path)
    sync(path.parent)  # the names of the files it speaks of
    try:
        with aside.open("w", encoding="utf-8") as file:
            json.dump({"sha256": _body_digest(body), "body": body}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)  # half a file on a full disk only makes it fuller
        raise
    sync(path.parent)


@contextmanager
def room(folder: Path, mend: str) -> Iterator[None]:
    """A full disk, said so that it can be mended."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(error.errno, f"no room is left on the disk of {folder}; free some and {mend}") from error


def read_page(path: Path) -> dict[str, Any] | None:
    """The body of a page; None if it is not what its checksum says."""
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
        body: dict[str, Any] = page["body"]
        return body if _body_digest(body) == page["sha256"] else None
    except (ValueError, KeyError, TypeError):
        return None


def _body_digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
