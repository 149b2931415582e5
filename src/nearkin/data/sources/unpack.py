"""Archives unpacked without letting them write anywhere but where they are told."""

import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from nearkin.data.progress import Report, Ticker, tell

ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".zip")


def unpack(archive: Path, folder: Path, report: Report | None = None) -> None:
    """Regular files only: links and devices are left out (and said), a name that leads out of `folder` is refused.

    Everything goes to a folder beside it first and is moved when whole, so that a half-unpacked set is never taken for one.
    """
    tell(report, f"unpacking {archive.name}")
    waiting = folder / f".{archive.name}.unpacking"
    shutil.rmtree(waiting, ignore_errors=True)
    ticker = Ticker(report, archive.name, None, "files")
    try:
        for done, (name, content) in enumerate(_members(archive, report), start=1):
            target = _inside(waiting, name, archive)
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
            ticker.update(done)
        for found in sorted(waiting.iterdir()):
            _move(found, folder / found.name)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise ValueError(f"{archive} cannot be unpacked ({error}); if it is damaged remove it and fetch it again") from error
    finally:
        shutil.rmtree(waiting, ignore_errors=True)


def _members(archive: Path, report: Report | None) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as pack:
            for info in pack.infolist():
                if not info.is_dir():
                    yield info.filename, pack.open(info)
        return
    with tarfile.open(archive, "r|*") as tape:  # read in one go: seeking in a compressed tape starts over
        for member in tape:
            content = tape.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name, content
            elif not member.isdir():
                tell(report, f"{archive.name}: left out {member.name}, which is neither a file nor a folder")


def _inside(folder: Path, name: str, archive: Path) -> Path:
    target = Path(os.path.normpath(folder / name))
    if not target.is_relative_to(folder) or target == folder:
        raise ValueError(f"{archive} holds {name}, which leads out of the folder; it is not an official file")
    return target


def _move(found: Path, target: Path) -> None:
    """Into place; folders that are there already are filled up rather than replaced."""
    if found.is_dir() and target.is_dir():
        for inner in found.iterdir():
            _move(inner, target / inner.name)
    else:
        os.replace(found, target)
