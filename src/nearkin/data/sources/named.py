"""Named sets by name: the entry looked up in the catalog, its files found or fetched, its reader called."""

import difflib
from pathlib import Path

from nearkin.data.dataset import Dataset
from nearkin.data.sources.catalog import SETS
from nearkin.data.sources.download import one_process
from nearkin.data.sources.local_files import MissingFileError, Shelf
from nearkin.data.sources.options import Wanted

ALIASES = {"cub": "cub-200-2011", "cub200": "cub-200-2011", "cars196": "cars", "stanfordcars": "cars", "sop": "online-products"}
ALIASES |= {"stanfordonlineproducts": "online-products", "stanforddogs": "dogs", "fashion": "fashion-mnist"}


def known_name(what: str) -> str | None:
    """The set that is meant, however it is written: CIFAR10 and cifar_10 are cifar-10."""
    plain = _plain(what)
    return ALIASES.get(plain) or next((name for name in SETS if _plain(name) == plain), None)


def nearest_name(what: str) -> str | None:
    """For a slip of the pen."""
    close = difflib.get_close_matches(_plain(what), [_plain(name) for name in SETS], n=1)
    return known_name(close[0]) if close else None


def open_named(name: str, data_root: Path, wanted: Wanted, download: bool) -> Dataset:
    """Read from under the data root; with `download` what is missing is fetched first."""
    entry = SETS[name]
    shelf = Shelf(name, data_root, entry.folders, entry.home, entry.files, entry.note, entry.shares_names)
    try:
        return entry.read(shelf, wanted)
    except MissingFileError:
        if not download or not entry.files:
            raise
    with one_process(data_root / entry.folders[0]):
        try:
            return entry.read(shelf, wanted)  # another rank may have fetched it while this one waited
        except MissingFileError:
            shelf.fetch(wanted.split, wanted.report)
        return entry.read(shelf, wanted)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
