"""Files on disk and files inside a zip, read by the same functions.

A file is named by one string, its path or `archive.zip!/member`. So a zip need not be unpacked, and a data folder may be read-only.
"""

import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

INSIDE = "!/"  # separates an archive from its member
IMAGE_SUFFIXES = (".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".wav", ".webp")
UNREAD_SUFFIXES = (".arw", ".avif", ".cr2", ".cr3", ".dng", ".heic", ".heif", ".jp2", ".jxl", ".nef", ".orf", ".raf", ".rw2")  # photographs

# One for each archive and process, since reading the members of a large zip takes a second. Threads share it.
_open_zips: dict[tuple[str, float, int], zipfile.ZipFile] = {}
_opening = threading.Lock()


def read_bytes(source: str) -> bytes:
    """Bytes of a file, or of a member of a zip."""
    archive, inside, member = source.partition(INSIDE)
    if inside and archive.lower().endswith(".zip"):
        try:
            return _zip(archive).read(member)
        except KeyError:
            raise FileNotFoundError(f"{archive} has no member {member}") from None
    return Path(source).read_bytes()


def byte_count(source: str) -> int:
    """Size of a file, or of a member of a zip, without reading it."""
    archive, inside, member = source.partition(INSIDE)
    if inside and archive.lower().endswith(".zip"):
        return _zip(archive).getinfo(member).file_size
    return os.stat(source).st_size


def join(place: str | Path, name: str) -> str:
    """The file `name` of a folder, or of a zip."""
    return f"{place}{INSIDE}{name}" if str(place).lower().endswith(".zip") else os.path.join(place, name)


def listing(place: str | Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[str]:
    """All images in a folder or zip at any depth, sorted by name; or all files with other `suffixes`."""
    if str(place).lower().endswith(".zip"):
        names = (name for name in _zip(str(place)).namelist() if is_image(name, suffixes) and "__MACOSX" not in name)
        return sorted(f"{place}{INSIDE}{name}" for name in names)
    return sorted(_walk(str(place), set(), suffixes))


def is_image(name: str, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> bool:
    """Whether a name ends as an image and is not hidden: macOS writes `._cat.jpg` next to `cat.jpg`."""
    return name.lower().endswith(suffixes) and not os.path.basename(name).startswith(".")


def folders(place: str | Path) -> list[str]:
    """Names of the folders directly inside, without hidden ones."""
    with os.scandir(place) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith((".", "__MACOSX")))


def _walk(folder: str, seen: set[str], suffixes: tuple[str, ...]) -> Iterator[str]:
    """Follow links, since class folders are often links to another disk; each real folder at most once on the way down."""
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
