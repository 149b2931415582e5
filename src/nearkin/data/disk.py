"""Writing files so that they survive a kill or a power cut: synced to disk, with a checksum, replaced in one rename."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def sync(path: Path) -> None:
    """Flush a file's content, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def set_default_permissions(path: Path) -> None:
    """Give a file the permissions of any new file: safetensors and pooch write files that only their owner can read."""
    probe = path.with_name(f".{path.name}-{os.getpid()}-new")
    probe.touch()
    mode = probe.stat().st_mode
    probe.unlink()
    path.chmod(mode & 0o777)


def digest(path: Path) -> str:
    """The sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def temporary_name(path: Path) -> Path:
    """Name under which a file is written before it is renamed."""
    return path.with_name(f".{path.name}-{os.getpid()}")


def write_checked_json(path: Path, body: Mapping[str, Any]) -> None:
    """Write JSON with a checksum of itself, in one rename: after a crash there is either the old file or the new one."""
    temporary = temporary_name(path)
    sync(path.parent)  # the files that it names must be on disk before it
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump({"sha256": body_digest(body), "body": body}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # half a file would only take space on a full disk
        raise
    sync(path.parent)


@contextmanager
def explain_full_disk(folder: Path, fix: str) -> Iterator[None]:
    """Add the folder and the fix to the error of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(error.errno, f"no room is left on the disk of {folder}; free some and {fix}") from error


def read_checked_json(path: Path) -> dict[str, Any] | None:
    """Read what `write_checked_json` wrote; None if it does not match its checksum."""
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
        body: dict[str, Any] = page["body"]
        return body if body_digest(body) == page["sha256"] else None
    except (ValueError, KeyError, TypeError):
        return None


def body_digest(body: Mapping[str, Any]) -> str:
    """The sha256 of JSON content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
