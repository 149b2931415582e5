"""Files on disk and files inside a zip, read alike.

A zip need not be unpacked, and a data folder may be read-only: a file is named by one string, either its path or
`archive.zip!/member`, and that string serves for reading, for reports and for errors.
"""

import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

INSIDE = "!/"  # what stands between an archive and its member
IMAGE_SUFFIXES = (".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
UNREAD_SUFFIXES = (".arw", ".avif", ".cr2", ".cr3", ".dng", ".heic", ".heif", ".jp2", ".jxl", ".nef", ".orf", ".raf", ".rw2")  # photographs

# One for each archive and process: the list of members of a large zip takes a second to read. Threads may share it.
_open_zips: dict[tuple[str, float, int], zipfile.ZipFile] = {}
_opening = threading.Lock()


def read_bytes(source: str) -> bytes:
    """The content of a file, or of a member of a zip."""
    archive, inside, member = source.partition(INSIDE)
    if inside and archive.lower().endswith(".zip"):
        try:
            return _zip(archive).read(member)
        except KeyError:
            raise FileNotFoundError(f"{archive} has no member {member}") from None
    return Path(source).read_bytes()


def byte_count(source: str) -> int:
    """The size of the content, without reading it."""
    archive, inside, member = source.partition(INSIDE)
    if inside and archive.lower().endswith(".zip"):
        return _zip(archive).getinfo(member).file_size
    return os.stat(source).st_size


def join(place: str | Path, name: str) -> str:
    """The file `name` of a folder, or of a zip."""
    return f"{place}{INSIDE}{name}" if str(place).lower().endswith(".zip") else os.path.join(place, name)


def listing(place: str | Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[str]:
    """Every image in a folder or zip, however deep, in the order of their names; with other `suffixes` every such file."""
    if str(place).lower().endswith(".zip"):
        names = (name for name in _zip(str(place)).namelist() if is_image(name, suffixes) and "__MACOSX" not in name)
        return sorted(f"{place}{INSIDE}{name}" for name in names)
    return sorted(_walk(str(place), set(), suffixes))


def is_image(name: str, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> bool:
    """By its ending, and not hidden: macOS leaves `._cat.jpg` beside `cat.jpg`."""
    return name.lower().endswith(suffixes) and not os.path.basename(name).startswith(".")


def folders(place: str | Path) -> list[str]:
    """Names of the folders directly inside, hidden ones left out."""
    with os.scandir(place) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith((".", "__MACOSX")))


def _walk(folder: str, seen: set[str], suffixes: tuple[str, ...]) -> Iterator[str]:
    """Follows links, since class folders are often links to where the disk has room; each real folder only once a branch."""
    real = os.path.realpath(folder)
    if real in seen:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if not entry.name.startswith("."):
                    yield from _walk(entry.path, seen | {real}, suffixes)
            elif is_image(entry.name, suffixes):
                yield entry.path


def _zip(archive: str) -> zipfile.ZipFile:
    key = (archive, os.stat(archive).st_mtime, os.getpid())
    with _opening:
        if key not in _open_zips:
            try:
                _open_zips[key] = zipfile.ZipFile(archive)
            except zipfile.BadZipFile as error:
                raise ValueError(f"{archive} is damaged or not a zip ({error}); fetch it again") from None
        return _open_zips[key]
