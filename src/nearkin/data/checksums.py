"""The checksums of a model folder: every file that nearkin writes into it is recorded in checksums.json and compared when it is opened.

A file's checksum is recorded before the file takes its name, and the one before stays beside it, or that there was none: whenever a crash
comes, what is there matches one of the two.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nearkin.data.disk import FileDamagedError, as_json, checksums, damage, read_checked_json, replacing, write_checked_json

try:
    import fcntl
except ImportError:  # Windows: two processes that write into one model folder at the same time may lose a record there
    fcntl = None  # type: ignore[assignment]

CHECKSUMS = "checksums.json"
EDITED = "if you edited it on purpose, `nearkin check FOLDER --accept` records it as it is now"

ABSENT = {"absent": True}  # the record of a file before it was there

Records = dict[str, list[dict[str, Any]]]  # by name in the folder: what was written last, and before that


class Checked(NamedTuple):
    """A file and what is wrong with it; `wrong` is "" if nothing is."""

    name: str
    wrong: str


@contextmanager
def recording(path: Path, folder: Path) -> Iterator[BinaryIO]:
    """Write a file as `replacing` does, and record its checksum in the model folder that it is in."""
    name = name_in(path, folder)
    with replacing(path, before=lambda temporary: _record(folder, name, checksums(temporary), new=not path.exists())) as file:
        yield file
    if ABSENT in recorded(folder).get(name, []):
        _settle(folder, name)


def write_recorded(path: Path, content: bytes | str, folder: Path) -> None:
    """The same for content at hand."""
    with recording(path, folder) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, content: Any) -> None:
    """Write and record JSON in a model folder."""
    write_recorded(path, as_json(content), path.parent)


def check(path: Path, folder: Path, fix: str) -> None:
    """Compare a file with its record, if it has one; the error names the file and the fix."""
    found = wrong(path, folder)
    if found:
        raise FileDamagedError(f"{path} is damaged: it {found}; {fix}; --no-verify (verify=False) opens it all the same")


def wrong(path: Path, folder: Path, *, whole: bool = False) -> str:
    """How a file differs from what was written, "" if it does not or nothing was recorded."""
    listed = recorded(folder).get(name_in(path, folder), [])
    if ABSENT in listed and not path.exists():
        return ""
    listed = [record for record in listed if record != ABSENT]
    found = [damage(path, record, whole=whole) for record in listed]
    return "" if not found or None in found else str(found[0])


def recorded_sha256(path: Path, folder: Path) -> str | None:
    """The sha256 of a file that matches its record; None if it has none. Where two records fit its size, it is read to tell which."""
    fitting = [record for record in recorded(folder).get(name_in(path, folder), []) if record.get("bytes") == path.stat().st_size]
    fitting = [record for record in fitting if damage(path, record) is None] if len(fitting) > 1 else fitting
    return str(fitting[0]["sha256"]) if fitting else None


def recorded(folder: Path) -> Records:
    """All records of a model folder; none if it has no checksums."""
    page = folder / CHECKSUMS
    if not page.is_file():
        return {}
    body = read_checked_json(page)
    if body is None:
        raise FileDamagedError(
            f"{page} is damaged, so that no file of {folder} can be verified; they may all be whole: open them with --no-verify "
            "(verify=False), and if they are right, `nearkin check FOLDER --accept` records them again"
        )
    return dict(body["files"])


def check_all(folder: Path) -> list[Checked]:
    """Compare every recorded file with its sha256."""
    return [Checked(name, wrong(folder / name, folder, whole=True)) for name in recorded(folder)]


def accept(folder: Path) -> int:
    """Record all files that are recorded already, and are still there, as they are now; returns how many have changed."""
    with _one_at_a_time(folder):
        try:
            before = recorded(folder)
        except FileDamagedError:
            before = {name: [] for name in _names(folder)}
        now: Records = {name: [checksums(folder / name)] for name in before if (folder / name).is_file()}
        write_checked_json(folder / CHECKSUMS, {"files": now})
    return sum(records[0] not in before[name] for name, records in now.items()) + len(before) - len(now)


def name_in(path: Path, folder: Path) -> str:
    """The name under which a file is recorded."""
    return Path(os.path.relpath(path, folder)).as_posix()


def _names(folder: Path) -> list[str]:
    """Files of a model folder that would have been recorded, where the record is lost."""
    return sorted(path.name for path in folder.iterdir() if path.suffix in (".json", ".safetensors") and path.name != CHECKSUMS)


def _record(folder: Path, name: str, record: dict[str, Any], *, new: bool) -> None:
    """Add what a file is about to be; what it was before stays."""
    with _one_at_a_time(folder):
        try:
            known = recorded(folder)
        except FileDamagedError:
            known = {}  # what is written from here on is recorded again
        known[name] = [record, *([ABSENT] if new else (old for old in known.get(name, [])[:1] if old != record))]
        write_checked_json(folder / CHECKSUMS, {"files": known})


def _settle(folder: Path, name: str) -> None:
    """A new file has its name: from here on it must not be missing."""
    with _one_at_a_time(folder):
        known = recorded(folder)
        known[name] = [record for record in known.get(name, []) if record != ABSENT]
        write_checked_json(folder / CHECKSUMS, {"files": known})


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Training and evaluation may write into one folder at the same time; a lock on the folder itself leaves no file behind."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks on folders
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
