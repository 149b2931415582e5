"""Known sets by name: look up the entry, find or fetch its files, call its reader."""

import difflib
from pathlib import Path

from nearkin.data.dataset import Dataset
from nearkin.data.sources.catalog import SETS
from nearkin.data.sources.download import one_process
from nearkin.data.sources.local_files import LocalFiles, MissingFileError
from nearkin.data.sources.options import ReadOptions

ALIASES = {"cub": "cub-200-2011", "cub200": "cub-200-2011", "cars196": "cars", "stanfordcars": "cars", "sop": "online-products"}
ALIASES |= {"stanfordonlineproducts": "online-products", "stanforddogs": "dogs", "fashion": "fashion-mnist"}


def known_name(what: str) -> str | None:
    """The known set of a name, or None; case and punctuation do not matter: CIFAR10 and cifar_10 are cifar-10."""
    plain = _plain(what)
    return ALIASES.get(plain) or next((name for name in SETS if _plain(name) == plain), None)


def nearest_name(what: str) -> str | None:
    """The known set with the most similar name, for misspelled ones."""
    close = difflib.get_close_matches(_plain(what), [_plain(name) for name in SETS], n=1)
    return known_name(close[0]) if close else None


def open_named(name: str, data_root: Path, options: ReadOptions, download: bool) -> Dataset:
    """Read a known set under the data root; `download` fetches missing files first."""
    entry = SETS[name]
    local = LocalFiles(name, data_root, entry.folders, entry.home, entry.files, entry.note, entry.shares_names)
    try:
        return entry.read(local, options)
    except MissingFileError:
        if not download or not entry.files:
            raise
    with one_process(data_root / entry.folders[0]):
        try:
            return entry.read(local, options)  # another process may have fetched it in the meantime
        except MissingFileError:
            local.fetch(options.split, options.report)
        return entry.read(local, options)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
