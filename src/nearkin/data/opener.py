"""`nearkin.data.open`: one function for known sets, folders, tables, arrays and shards."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from nearkin.compose.validation import check_choice
from nearkin.data.dataset import WHOLE, Dataset, Supervision
from nearkin.data.delimited import PLAIN_SUFFIXES, is_table
from nearkin.data.images import OnError
from nearkin.data.pixels import Framing, Interpolation
from nearkin.data.progress import Report, inform, warn
from nearkin.data.shards import is_sharded
from nearkin.data.sources.arrays import ARRAY_SUFFIXES, Arrays, open_array_file, open_arrays
from nearkin.data.sources.catalog import SETS
from nearkin.data.sources.folder import open_folder
from nearkin.data.sources.named import known_name, nearest_name, open_named
from nearkin.data.sources.options import ReadOptions
from nearkin.data.sources.rows import lists_files, open_rows
from nearkin.data.sources.sharded import open_sharded
from nearkin.data.sources.table import Columns, open_table
from nearkin.data.sources.texts import holds_texts, open_text_folder, open_text_table
from nearkin.data.sources.vector_tables import VectorColumns, holds_vectors
from nearkin.data.sources.vectors import read_vectors
from nearkin.data.table_format import TableFormat

DATA_ROOT = "data"


def open(
    what: str | os.PathLike[str] | Arrays,
    *,
    data_root: str | os.PathLike[str] = DATA_ROOT,
    split: str | None = None,
    supervision: Supervision | None = None,
    size: int | None = None,
    crop: float = 1.0,
    interpolation: Interpolation = "bilinear",
    channels: int | None = None,
    path_column: str = "path",
    text_column: str | None = None,
    label_column: str | None = None,
    target_columns: str | Sequence[str] | None = None,
    split_column: str | None = None,
    group_column: str | None = None,
    ignore_columns: str | Sequence[str] | None = None,
    keep_columns: str | Sequence[str] | None = None,
    category_columns: str | Sequence[str] | None = None,
    keep_unlabeled: bool = False,
    rows: TableFormat | None = None,
    on_error: OnError = "raise",
    download: bool = False,
    report: Report | None = None,
) -> Dataset:
    """Open a data set: a known set, a folder, a table, arrays or shards.

    Parameters
    ----------
    what : str, path or arrays
        One of:

        - the name of a known set (`nearkin.data.SETS`), looked for under `data_root`; to open a folder with such a name write ./mnist
        - a folder of images, of recordings (.wav, read as pictures of their spectrograms) or of texts (.txt), with a folder for each
          class or without classes, and with or without train/, val/ and test/ above them
        - a table (.csv, .tsv, .parquet, also .txt and .data, or packed as .csv.gz) with the path of one image, or a text, in each row,
          or a .parquet file with a column of vectors
        - a table without such a column, or a pandas or polars frame, whose rows are the points: numbers, categories, booleans, dates
        - an array file (.npz, .npy), or arrays in memory: x, a pair (x, y), or a mapping with x and any of labels, targets, sets, split,
          groups and classes
        - a folder of shards, which stay on disk until they are read

    data_root : path, default="data"
        Folder in which known sets are looked for, each in a folder of its own.
    split : {"train", "validation", "test"}, optional
        Return only this split. Ids stay those of the whole set.
    supervision : {"classes", "numbers", "sets", "ids"}, optional
        What to learn from, for data with more than one kind of label; "ids" uses none. By default the first of classes, sets and numbers;
        numbers if only `target_columns` is given.
    size : int, optional
        Resize the short side of images to `size` and cut out the center, `size` x `size`. Needed if images differ in size.
    crop : float, default=1.0
        Share of the short side that the cut keeps, for image files: the short side is resized to `size` / `crop` first.
    interpolation : {"nearest", "bilinear", "bicubic", "lanczos"}, default="bilinear"
        How image files are resized.
    channels : {1, 3}, optional
        Convert images to gray (1) or color (3). By default as the files are.
    path_column : str, default="path"
        Column of a table with the paths, relative to the table's folder.
    text_column : str, optional
        Column of a table with texts, which are then the points. Two or more, as "question,answer", are texts that belong together: each
        row becomes a class of its own, and its texts are each other's positives.
    label_column : str, optional
        Column with the class; several classes of one image are separated by |. By default "label", if there is one.
    target_columns : str or sequence of str, optional
        Columns with numbers, as "x,y" or ("x", "y"). By default "target", if there is one.
    split_column : str, optional
        Column with train, validation or test. By default "split", if there is one.
    group_column : str, optional
        Column with the group. By default "group", if there is one.
    ignore_columns : str or sequence of str, optional
        Columns that are not read, of a table whose rows are the points.
    keep_columns : str or sequence of str, optional
        Columns of such a table that are used although they look like an id.
    category_columns : str or sequence of str, optional
        Columns of such a table whose numbers are names, such as zip codes; cells may be of any kind.
    keep_unlabeled : bool, default=False
        Keep rows of such a table that have no class, as class -1, and with `rows` also those without numbers to predict, as NaN. By
        default they are left out, and counted.
    rows : TableFormat, optional
        The columns of the table that a model was trained on; this table must have the same features. With ``supervision="ids"`` its
        classes and numbers are not read, and rows without them are kept.
    on_error : {"raise", "skip"}, default="raise"
        "skip" leaves out missing files, empty class folders and (when loading) damaged images, and reports how many.
    download : bool, default=False
        Fetch missing official files of a known set (needs `pip install 'nearkin[download]'`).
    report : callable, optional
        Called with each line of progress, such as `print`.

    Returns
    -------
    Dataset

    Raises
    ------
    FileNotFoundError
        If `what` is neither a known set nor a path, or (`MissingFileError`) if files of a known set are missing.
    ValueError
        If an argument or a file has a wrong value; the message names it and the fix.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin import data
    >>> data.open("digits")
    <Dataset digits: 1,797 gray images 8 x 8; 10 classes (0, 1, 2, ...); all 1,797; to learn from: classes>
    >>> vectors, labels = np.eye(4, dtype=np.float32), np.array(["cat", "cat", "dog", "dog"])
    >>> data.open((vectors, labels)).classes
    ('cat', 'dog')
    """
    _check(size, channels, on_error, supervision)
    options = ReadOptions(split, None if size is None else Framing(size, crop, interpolation), channels, on_error, report)
    targets = _names(target_columns)
    listed = (text_column, ignore_columns, keep_columns, category_columns)
    texts, ignored, kept, categories = (_names(given) or () for given in listed)
    columns = Columns(path_column, label_column, targets, split_column, group_column, texts, ignored, kept, categories)
    data = _opened(what, Path(data_root), columns, options, download, rows, {"asked": supervision == "ids", "keep": keep_unlabeled})
    for option, names in (("ignore_columns", ignored), ("keep_columns", kept), ("category_columns", categories)):
        if names and data.table is None:
            raise ValueError(f"{option} ({', '.join(names)}) are for tables whose rows are the points, and {what} is none; leave it out")
    if supervision is None and targets and label_column is None:
        supervision = "numbers"  # target columns are named in order to learn from them
    if supervision is not None:
        data = replace(data, by=supervision)
    inform(report, data.describe())
    return data if split is None or split == WHOLE else data.part(split)


def _opened(
    what: str | os.PathLike[str] | Arrays,
    data_root: Path,
    columns: Columns,
    options: ReadOptions,
    download: bool,
    rows: TableFormat | None,
    answers: Mapping[str, bool],
) -> Dataset:
    if not isinstance(what, str | os.PathLike):
        framed = rows is not None or hasattr(what, "columns")
        return open_rows(what, columns, options.report, rows, **answers) if framed else open_arrays(what, options)
    text = os.fspath(what)
    name = _named(text) if isinstance(what, str) else None
    if name is not None:
        if os.path.exists(text):
            warn(
                options.report,
                f"{text} names a known set, which is opened; for the file or folder of that name write {os.path.join('.', text)}",
            )
        return open_named(name, data_root, options, download)
    path = Path(text).expanduser()
    if is_sharded(path):
        return Dataset(path.resolve().name, **open_sharded(path))
    if path.is_dir():
        return open_text_folder(path, options) if holds_texts(path) else open_folder(path, options)
    if not path.exists():
        raise FileNotFoundError(_unknown(text))
    if columns.texts and is_table(path.name):
        return open_text_table(path, columns, options)
    if holds_vectors(path, columns.path):
        return read_vectors(path, columns=_vector_columns(columns), on_error=options.on_error, report=options.report)
    if is_table(path.name):
        if rows is not None or not lists_files(path, columns.path):
            return open_rows(path, columns, options.report, rows, **answers)
        return open_table(path, columns, options)
    if path.suffix.lower() in ARRAY_SUFFIXES:
        return open_array_file(path, options)
    known = ", ".join((*PLAIN_SUFFIXES, ".parquet", *ARRAY_SUFFIXES))
    fix = f"give a folder, a file ending with {known}, or a known name"
    if path.suffix.lower() in (".zip", ".gz", ".bz2", ".xz", ".zst"):
        fix = f"unpack it, or pack one file as .csv.gz; {fix}"
    raise ValueError(f"what: {path} ends with {path.suffix or 'nothing'!r}; {fix}")


def _vector_columns(columns: Columns) -> VectorColumns:
    return VectorColumns(label=columns.label, targets=columns.targets, split=columns.split, group=columns.group)


def absolute_source(what: str) -> str:
    """The name of a known set as it is, a path as an absolute one: valid in any working directory."""
    path = os.path.expanduser(what)
    return os.path.abspath(path) if what and _named(what) is None and os.path.exists(path) else what


def absolute_root(what: str, data_root: str | os.PathLike[str]) -> str:
    """The absolute path of the data root for a known set that is read from disk; '' for all other data."""
    name = _named(what)
    return os.path.abspath(os.path.expanduser(data_root)) if name is not None and SETS[name].folders else ""


def same_set(one: str, other: str) -> bool:
    """Whether both are names of one known set: fashion and Fashion_MNIST are."""
    return _named(one) is not None and _named(one) == _named(other)


def _named(text: str) -> str | None:
    """The known set of this name, or None; anything with a folder in it is a path."""
    return known_name(text) if os.path.basename(text) == text else None


def _unknown(text: str) -> str:
    near = nearest_name(text)
    meant = f" Did you mean {near!r}?" if near else ""
    return f"{text!r} is neither a file or folder nor a known data set.{meant} Known are {', '.join(SETS)}"


def _names(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """'x,y' or ('x', 'y')."""
    names = given.split(",") if isinstance(given, str) else given
    return tuple(name.strip() for name in names) if names else None


def _check(size: int | None, channels: int | None, on_error: str, supervision: str | None) -> None:
    if size is not None and size < 1:
        raise ValueError(f"size ({size}) must be at least 1 pixel; leave it out if all images are of one size")
    if channels not in (None, 1, 3):
        raise ValueError(f"channels ({channels}) must be 1 (gray) or 3 (color); leave it out to take it from the images")
    check_choice("on_error", on_error, get_args(OnError))
    if supervision is not None:
        check_choice("supervision", supervision, get_args(Supervision))
