"""One door for all data: `nearkin.data.open("mnist")`, `open("photos/")`, `open("table.csv")`, `open((vectors, labels))`."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from nearkin.data.dataset import WHOLE, Dataset, Supervision
from nearkin.data.images import OnError
from nearkin.data.progress import Report, caution, tell
from nearkin.data.shards import is_sharded
from nearkin.data.sources.arrays import ARRAY_SUFFIXES, Arrays, open_array_file, open_arrays
from nearkin.data.sources.catalog import SETS
from nearkin.data.sources.folder import open_folder
from nearkin.data.sources.named import known_name, nearest_name, open_named
from nearkin.data.sources.options import Wanted
from nearkin.data.sources.sharded import open_sharded
from nearkin.data.sources.table import TABLE_SUFFIXES, Columns, open_table

DATA_ROOT = "data"


def open(
    what: str | os.PathLike[str] | Arrays,
    *,
    data_root: str | os.PathLike[str] = DATA_ROOT,
    split: str | None = None,
    supervision: Supervision | None = None,
    size: int | None = None,
    channels: int | None = None,
    path_column: str = "path",
    label_column: str | None = None,
    target_columns: str | Sequence[str] | None = None,
    split_column: str | None = None,
    group_column: str | None = None,
    on_error: OnError = "raise",
    download: bool = False,
    report: Report | None = None,
) -> Dataset:
    """A data set from wherever it is.

    what: the name of a known set, which is looked for under `data_root`; a folder of images (a folder for each class, or none;
        below train/, val/ and test/, or not); a folder of shards, whose vectors stay on disk until they are needed; a table (.csv,
        .tsv, .parquet) that names images; arrays (.npz, .npy), or arrays in memory: x, (x, y), or a mapping with x, labels, targets,
        sets, split, groups. A name wins over a folder of that name: write ./mnist for the folder.
    split: only the points of train, validation or test. Ids stay those of the whole set.
    supervision: what to learn from, if the data know more than one thing: "classes", "numbers", "sets", or "ids" for nothing.
    size, channels: resize the short side and cut out the center, size x size; 1 for gray or 3 for color.
    label_column and its like: what a table's columns are called, where they are not called label, target, split and group;
        several targets as "x,y", several labels of one image separated by |.
    on_error: "skip" leaves out files that are missing, empty class folders and (when loading) damaged images, and reports their number.
    download: fetch official files of a named set that are not there.
    report: is called with lines of text, such as print.
    """
    _check(size, channels, on_error, supervision)
    wanted = Wanted(split, size, channels, on_error, report)
    targets = _names(target_columns)
    columns = Columns(path_column, label_column, targets, split_column, group_column)
    data = _opened(what, Path(data_root), columns, wanted, download)
    if supervision is None and targets and label_column is None:
        supervision = "numbers"  # whoever names the targets wants to learn from them
    if supervision is not None:
        data = replace(data, by=supervision)
    tell(report, data.describe())
    return data if split is None or split == WHOLE else data.part(split)


def _opened(what: str | os.PathLike[str] | Arrays, data_root: Path, columns: Columns, wanted: Wanted, download: bool) -> Dataset:
    if not isinstance(what, str | os.PathLike):
        return open_arrays(what, wanted)
    text = os.fspath(what)
    name = _named(text) if isinstance(what, str) else None
    if name is not None:
        if os.path.exists(text):
            caution(wanted.report, f"{text} is a known set, and is taken; for what is here under that name write {os.path.join('.', text)}")
        return open_named(name, data_root, wanted, download)
    path = Path(text).expanduser()
    if is_sharded(path):
        return Dataset(path.resolve().name, **open_sharded(path))
    if path.is_dir():
        return open_folder(path, wanted)
    if not path.exists():
        raise FileNotFoundError(_unknown(text))
    if path.suffix.lower() in TABLE_SUFFIXES:
        return open_table(path, columns, wanted)
    if path.suffix.lower() in ARRAY_SUFFIXES:
        return open_array_file(path, wanted)
    known = ", ".join((*TABLE_SUFFIXES, *ARRAY_SUFFIXES))
    raise ValueError(f"what: {path} ends with {path.suffix or 'nothing'!r}; give a folder, a file ending with {known}, or a known name")


def from_anywhere(what: str) -> str:
    """The same data as they are called from any folder: known sets keep their name, what is on the disk has its whole path."""
    path = os.path.expanduser(what)
    return os.path.abspath(path) if what and _named(what) is None and os.path.exists(path) else what


def whole_root(what: str, data_root: str | os.PathLike[str]) -> str:
    """The absolute path of the data root for a known set that is read from disk; '' for all other data."""
    name = _named(what)
    return os.path.abspath(os.path.expanduser(data_root)) if name is not None and SETS[name].folders else ""


def same_set(one: str, other: str) -> bool:
    """Whether both are names of one known set: fashion and Fashion_MNIST are."""
    return _named(one) is not None and _named(one) == _named(other)


def _named(text: str) -> str | None:
    """The known set of this name; anything with a folder in it is a path."""
    return known_name(text) if os.path.basename(text) == text else None


def _unknown(text: str) -> str:
    near = nearest_name(text)
    meant = f" Did you mean {near!r}?" if near else ""
    return f"what: {text!r} is neither a file or folder nor a known data set.{meant} Known are {', '.join(SETS)}"


def _names(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """'x,y' or ('x', 'y')."""
    names = given.split(",") if isinstance(given, str) else given
    return tuple(name.strip() for name in names) if names else None


def _check(size: int | None, channels: int | None, on_error: str, supervision: str | None) -> None:
    if size is not None and size < 1:
        raise ValueError(f"size ({size}) must be at least 1 pixel; leave it out if all images are of one size")
    if channels not in (None, 1, 3):
        raise ValueError(f"channels ({channels}) must be 1 (gray) or 3 (color); leave it out to let the images tell")
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error {on_error!r} is unknown; choose 'raise' or 'skip'")
    if supervision is not None and supervision not in get_args(Supervision):
        raise ValueError(f"supervision {supervision!r} is unknown; choose one of {', '.join(get_args(Supervision))}")
