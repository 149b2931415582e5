"""Writing files so that they survive a kill, a full disk or a power cut: synced to disk, and replaced in one rename.

Everything that is to last is written through `replacing` or `created`, so that there is one place to get right, and one place where tests
inject faults. Other modules call these functions and never write such files by themselves.
"""

import errno
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

BLOCK = 1 << 20  # bytes of a block of `fast_digest`, which stays in the processor's cache
ROWS = 256  # of a block


class FileDamagedError(ValueError):
    """A file is cut, changed or not what its name says. The message names it, and what to do."""


class _Descriptor(io.RawIOBase):
    """A file that is written by `os.write`; the buffer around it repeats short writes."""

    def __init__(self, handle: int) -> None:
        self.handle, self._at = handle, 0
        self.given_up = False  # after an error the buffer may still hold content, and the handle may be another file's by then

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, content: Any) -> int:
        done = len(content) if self.given_up else os.write(self.handle, content)
        self._at += done
        return done


def sync(path: Path) -> None:
    """Flush a file's content, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def created(path: Path) -> Iterator[BinaryIO]:
    """Write a new file, or overwrite one; at the end its content is on disk. After an error nothing is left of it.

    The caller syncs the folder when all of its files are written.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o666)
    raw = _Descriptor(handle)
    try:
        try:
            file = io.BufferedWriter(raw, BLOCK)
            yield cast(BinaryIO, file)
            file.flush()
            os.fsync(handle)
        finally:
            raw.given_up = True
            os.close(handle)
    except BaseException:
        path.unlink(missing_ok=True)  # a part of a file would only fill the disk
        raise


@contextmanager
def replacing(path: Path, before: Callable[[Path], None] | None = None) -> Iterator[BinaryIO]:
    """Write a file under a temporary name; at the end it is synced and takes its own name in one rename.

    After a kill, a full disk or a power cut there is either the old file or the new one. `before` is called with the temporary file when
    it is complete, before the rename.
    """
    temporary = temporary_name(path)
    with created(temporary) as file:
        yield file
    try:
        if before is not None:
            before(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def renamed(folder: Path, target: Path) -> None:
    """Give a complete and synced folder its name, which is on disk when this returns."""
    os.replace(folder, target)
    sync(target.parent)


def append_line(path: Path, line: str) -> None:
    """Add a line to a log; a line that does not fit on the disk is taken back. A log is not synced."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        content, size = f"{line}\n".encode(), os.fstat(handle).st_size
        try:
            while content:
                content = content[os.write(handle, content) :]
        except OSError:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)


def overwrite(path: Path, text: str) -> None:
    """Overwrite a file in place, where its identity matters, such as a lock's. It is neither synced nor whole after a crash."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def set_default_permissions(path: Path) -> None:
    """Give a file the permissions of any new file: pooch writes files that only their owner can read."""
    probe = path.with_name(f".{path.name}-{os.getpid()}-new")
    probe.touch()
    mode = probe.stat().st_mode
    probe.unlink()
    path.chmod(mode & 0o777)


def digest(path: Path) -> str:
    """The sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fast_digest(path: Path) -> str:
    """A checksum at the speed of memory, several times that of sha256 or crc32: for damage, not against forgery.

    The 8-byte words of each block are added up by row and by column, and the sums are hashed. Any changed, moved or missing word changes
    a sum; only changes that cancel in all four corners of a rectangle would not.
    """
    block = np.zeros(BLOCK, np.uint8)
    words, found, size = block.view(np.uint64).reshape(ROWS, -1), hashlib.sha256(), 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block.data):
            block[count:] = 0
            found.update(words.sum(0).tobytes() + words.sum(1).tobytes())
            size += count
    found.update(str(size).encode())
    return found.hexdigest()[:32]


def checksums(path: Path) -> dict[str, Any]:
    """What a manifest records of a file: bytes, sha256, and the fast checksum that is compared whenever the file is opened."""
    return {"bytes": path.stat().st_size, "sha256": digest(path), "fast": fast_digest(path)}


def damage(path: Path, record: Mapping[str, Any], *, whole: bool = False) -> str | None:
    """How a file differs from its record, None if it does not: by its size and fast checksum, and with `whole` by sha256, too."""
    if not path.is_file():
        return "is missing"
    if path.stat().st_size != record["bytes"]:
        return f"has {path.stat().st_size:,} bytes where {record['bytes']:,} were written"
    if "fast" in record and fast_digest(path) != record["fast"]:  # older files have none
        return "does not match its checksum"
    return "does not match its checksum" if whole and digest(path) != record["sha256"] else None


def temporary_name(path: Path) -> Path:
    """Name under which a file is written before it is renamed."""
    return path.with_name(f".{path.name}-{os.getpid()}")


def as_json(content: Any) -> bytes:
    """JSON for people to read, as a file holds it."""
    return (json.dumps(content, indent=2) + "\n").encode()


def read_json(path: Path, fix: str) -> Any:
    """Read JSON; if it is cut or no JSON, the error names the file and the fix."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # also of text that is no UTF-8
        raise FileDamagedError(f"{path} is damaged: it is not JSON ({error}); {fix}") from error


def write_checked_json(path: Path, body: Mapping[str, Any]) -> None:
    """Write JSON with a checksum of itself, in one rename: after a crash there is either the old file or the new one."""
    sync(path.parent)  # the files that it names must be on disk before it
    with replacing(path) as file:
        file.write(json.dumps({"sha256": body_digest(body), "body": body}, indent=1).encode())


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
