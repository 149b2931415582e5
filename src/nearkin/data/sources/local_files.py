"""The files of a known set under the data root: finding them, fetching them, and the error if they are missing."""

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from nearkin.data.progress import Report
from nearkin.data.sources.download import fetch
from nearkin.data.sources.unpack import ARCHIVE_SUFFIXES, unpack


@dataclass(frozen=True)
class OfficialFile:
    """One official file: its name, its addresses, and its checksum ('sha256:...' or 'md5:...')."""

    name: str
    urls: tuple[str, ...]
    checksum: str
    extra: bool = False  # needed only for the split named extra
    unpacked: bool = False  # whether the reader needs it unpacked on disk


class MissingFileError(FileNotFoundError):
    """A file of a known set is missing; the message says where it was looked for and how to get it."""


@dataclass(frozen=True)
class LocalFiles:
    """The folders under `root` in which a known set may be; files are fetched into the first of `folders`."""

    name: str
    root: Path
    folders: tuple[str, ...]
    home: str  # the authors' page
    files: tuple[OfficialFile, ...] = ()
    note: str = ""
    shares_names: bool = False  # another set has files of the same names, so its files must be in a folder of their own

    @property
    def places(self) -> list[Path]:
        """The folders by name, and the root itself if its name or the file names are unambiguous."""
        named = [self.root / folder for folder in self.folders]
        is_one = any(self.root.resolve().match(folder) for folder in self.folders)
        return [*named, self.root] if is_one or not self.shares_names else named

    def find(self, *names: str) -> Path:
        """Find the first of these alternative names that exists."""
        found = self.find_or_none(*names)
        if found is None:
            raise MissingFileError(self._missing(names))
        return found

    def find_or_none(self, *names: str) -> Path | None:
        """As `find`; None if no name exists."""
        for place in self.places:
            for name in names:
                if (place / name).exists():
                    return place / name
        return None

    def glob(self, pattern: str) -> Path | None:
        """Find the first file that matches a pattern, or None."""
        return next((path for place in self.places if place.is_dir() for path in sorted(place.glob(pattern))), None)

    def fetch(self, split: str | None, report: Report | None) -> None:
        """Fetch, verify and, if the reader needs that, unpack the official files of a split."""
        folder = self.root / self.folders[0]
        for official in self.files:
            if official.extra and split != "extra":
                continue
            held = self.find_or_none(official.name)
            if held is None:
                held = folder / official.name
                fetch(official.urls, held, official.checksum, report=report)
            if official.unpacked and held.name.endswith(ARCHIVE_SUFFIXES):
                unpack(held, folder, report)

    def _download(self) -> str:
        """How to fetch the set, in Python and at the command line, whose verbs fetch nothing."""
        code = f"from nearkin.data import open; open({json.dumps(self.name)}, data_root={json.dumps(str(self.root))}, download=True)"
        return f"pass download=True to nearkin.data.open (at the command line, first: `python -c {shlex.quote(code)}`)"

    def _missing(self, names: tuple[str, ...]) -> str:
        looked = ", ".join(os.path.join(place, "") for place in self.places)
        alternatives = " (or " + ", ".join(names[1:]) + ")" if len(names) > 1 else ""
        packed = [official.name for official in self.files if official.unpacked and self.find_or_none(official.name)]
        if packed:
            how = f"unpack {', '.join(packed)}, or {self._download()}, which does so"
        elif self.files:
            how = f"to fetch it {self._download()}; or get it from {self.home}"
        else:
            how = f"it cannot be fetched automatically: get it from {self.home}"
        return f"{self.name}: {names[0]}{alternatives} is missing; looked in {looked}. {how[0].upper()}{how[1:]}" + (
            f". {self.note[0].upper()}{self.note[1:]}" if self.note else ""
        )
