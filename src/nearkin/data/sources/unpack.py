"""Unpacking archives that can write only into their own folder.

Not by pooch: on Python 3.11 its Untar extracts without a filter, later ones extract links, and what it has unpacked halfway stays.
"""

import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from nearkin.data.progress import Report, Ticker, inform

ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".zip")


def unpack(archive: Path, folder: Path, report: Report | None = None) -> None:
    """Unpack regular files; links and devices are left out and reported, and a name that leads out of `folder` is an error.

    Files are unpacked into a hidden folder in it and moved when all of them are there, so that half a set is never taken for a whole one.
    """
    inform(report, f"unpacking {archive.name}")
    staged = folder / f".{archive.name}.unpacking"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)  # a link of this name, which rmtree leaves alone, is an error
    ticker = Ticker(report, archive.name, None, "files")
    try:
        for done, (name, content) in enumerate(_members(archive, report), start=1):
            target = _inside(staged, name, archive)
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
            ticker.update(done)
        if hasattr(os, "sync"):  # once for all files, before they get their names: one sync a file would take minutes
            os.sync()
        for found in sorted(staged.iterdir()):
            _move(found, folder / found.name)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise ValueError(f"{archive} cannot be unpacked ({error}); if it is damaged, remove it and fetch it again") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _members(archive: Path, report: Report | None) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if not info.is_dir():
                    yield info.filename, zipped.open(info)
        return
    with tarfile.open(archive, "r|*") as tar:  # as a stream: seeking back in a compressed file starts over
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name, content
            elif not member.isdir():
                inform(report, f"{archive.name}: left out {member.name}, which is neither a file nor a folder")


def _inside(folder: Path, name: str, archive: Path) -> Path:
    target = Path(os.path.normpath(folder / name))
    if not target.is_relative_to(folder) or target == folder:
        raise ValueError(f"{archive} holds {name}, which leads out of the folder; it is not an official file")
    return target


def _move(found: Path, target: Path) -> None:
    """Move a file or folder; existing folders are merged."""
    if found.is_dir() and target.is_dir():
        for inner in found.iterdir():
            _move(inner, target / inner.name)
    else:
        os.replace(found, target)
