"""Where a named set lies: the files its reader asks for, found under the data root, or an error that says where to get them."""

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from nearkin.data.progress import Report
from nearkin.data.sources.download import fetch
from nearkin.data.sources.unpack import ARCHIVE_SUFFIXES, unpack


@dataclass(frozen=True)
class Official:
    """One official file: its name, where it can be fetched, its checksum ('sha256:...' or 'md5:...')."""

    name: str
    urls: tuple[str, ...]
    checksum: str
    extra: bool = False  # only needed for the split named extra
    unpacked: bool = False  # whether the reader wants its contents on disk; others are read as they are


class MissingFileError(FileNotFoundError):
    """A file of a named set that is not under the data root."""


@dataclass(frozen=True)
class Shelf:
    """The places under `root` where a set may lie; the first of `folders` is where fetched files go."""

    name: str
    root: Path
    folders: tuple[str, ...]
    home: str  # the authors' page
    files: tuple[Official, ...] = ()
    note: str = ""
    shares_names: bool = False  # its files are called as another set's, so they must lie in a folder of their own

    @property
    def places(self) -> list[Path]:
        """The folders by name, and the root itself if its name or the files' own names leave no doubt."""
        named = [self.root / folder for folder in self.folders]
        is_one = any(self.root.resolve().match(folder) for folder in self.folders)
        return [*named, self.root] if is_one or not self.shares_names else named

    def find(self, *names: str) -> Path:
        """The first of these names (they are alternatives) that is there."""
        found = self.look(*names)
        if found is None:
            raise MissingFileError(self._missing(names))
        return found

    def look(self, *names: str) -> Path | None:
        """As `find`, or None."""
        for place in self.places:
            for name in names:
                if (place / name).exists():
                    return place / name
        return None

    def glob(self, pattern: str) -> Path | None:
        """The first file of a pattern, or None."""
        return next((path for place in self.places if place.is_dir() for path in sorted(place.glob(pattern))), None)

    def fetch(self, split: str | None, report: Report | None) -> None:
        """The official files that a split needs, checked, and unpacked where the reader wants that."""
        folder = self.root / self.folders[0]
        for official in self.files:
            if official.extra and split != "extra":
                continue
            held = self.look(official.name)
            if held is None:
                held = folder / official.name
                fetch(official.urls, held, official.checksum, report=report)
            if official.unpacked and held.name.endswith(ARCHIVE_SUFFIXES):
                unpack(held, folder, report)

    def _download(self) -> str:
        """How to have it fetched, in Python and at the command line, whose verbs fetch nothing."""
        code = f"from nearkin.data import open; open({json.dumps(self.name)}, data_root={json.dumps(str(self.root))}, download=True)"
        return f"pass download=True to nearkin.data.open (at the command line, first: `python -c {shlex.quote(code)}`)"

    def _missing(self, names: tuple[str, ...]) -> str:
        looked = ", ".join(os.path.join(place, "") for place in self.places)
        alternatives = " (or " + ", ".join(names[1:]) + ")" if len(names) > 1 else ""
        packed = [official.name for official in self.files if official.unpacked and self.look(official.name)]
        if packed:
            how = f"{', '.join(packed)} is there: unpack it, or {self._download()}, which does so"
        elif self.files:
            how = f"to fetch it {self._download()}; or get it from {self.home}"
        else:
            how = f"it cannot be fetched automatically: get it from {self.home}"
        return f"{self.name}: {names[0]}{alternatives} is missing; looked in {looked}. {how[0].upper()}{how[1:]}" + (
            f". {self.note[0].upper()}{self.note[1:]}" if self.note else ""
        )
