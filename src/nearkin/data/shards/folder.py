"""A folder of shards: the manifest, and the checks over all shards."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from nearkin.data.disk import explain_full_disk, read_checked_json, write_checked_json
from nearkin.data.shards.files import (
    AGAIN,
    KEPT,
    MANIFEST,
    About,
    Shard,
    ShardDamagedError,
    arrow,
    check_record,
    column,
    ids_of,
    joined,
    labels_of,
    row_groups,
)


class Shards:
    """A folder of shards of one model. `open_shards` opens one; iterating yields every `Shard` that is not empty.

    Parameters
    ----------
    folder : Path
        The folder.
    about : About
        What all shards have in common.
    records : sequence of mapping
        The record of every shard, in order.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from nearkin.data.shards import About, Shard, open_shards, write_manifest, write_shard
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name)
    ...     some = Shard(np.arange(3), np.eye(3, dtype=np.float32), None)
    ...     write_manifest(folder, About("", 3, "euclidean"), [write_shard(folder, 0, some)])
    ...     shards = open_shards(folder)
    ...     len(shards), shards.dimension, shards.read(0).ids.tolist()
    (3, 3, [0, 1, 2])
    """

    def __init__(self, folder: Path, about: About, records: Sequence[Mapping[str, Any]]) -> None:
        self.folder, self.about, self.records = folder, about, tuple(records)

    def __len__(self) -> int:
        """Number of points in all shards."""
        return sum(int(record["rows"]) for record in self.records)

    def __iter__(self) -> Iterator[Shard]:
        return (self.read(number) for number, record in enumerate(self.records) if record["rows"])

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return self.about.dimension

    def read(self, number: int, *, sources: bool = False) -> Shard:
        """Read one shard.

        Parameters
        ----------
        number : int
            Its position in the manifest, from 0.
        sources : bool, default=False
            Read the sources, too.

        Returns
        -------
        Shard
        """
        return joined(list(self.parts(number, sources=sources)))

    def parts(self, number: int, *, sources: bool = False) -> Iterator[Shard]:
        """Read one shard, one row group at a time.

        Parameters
        ----------
        number : int
            Its position in the manifest, from 0.
        sources : bool, default=False
            Read the sources, too.

        Yields
        ------
        Shard
        """
        yield from row_groups(self.path(number), self.about, sources)

    def blocks(self) -> Iterator[Shard]:
        """Read all points in order, one row group at a time, which takes the least memory.

        Yields
        ------
        Shard
        """
        for number, record in enumerate(self.records):
            if record["rows"]:
                yield from self.parts(number)

    def ids(self, number: int) -> np.ndarray:
        """Read the ids of one shard.

        Parameters
        ----------
        number : int
            Its position in the manifest, from 0.

        Returns
        -------
        ndarray
        """
        return ids_of(self.path(number))

    def labels(self) -> np.ndarray | None:
        """Read the labels of all points, without their vectors.

        Returns
        -------
        ndarray or None
        """
        if self.about.supervision == "ids":
            return None
        found = [labels_of(column(self.path(number), "label"), self.about) for number in range(len(self.records))]
        return np.concatenate([labels for labels in found if labels is not None])

    def labels_at(self, rows: np.ndarray) -> np.ndarray | None:
        """Read the labels of some points, one shard at a time.

        Parameters
        ----------
        rows : ndarray
            Positions among all points, of any shape.

        Returns
        -------
        ndarray or None
            Labels in the shape of `rows`; numbers have one axis more.
        """
        if self.about.supervision == "ids":
            return None
        flat, starts = rows.reshape(-1), self.starts()
        home, found = np.searchsorted(starts, flat, side="right") - 1, None
        for number in np.unique(home).tolist():
            labels = labels_of(column(self.path(number), "label"), self.about)
            assert labels is not None
            found = np.empty((len(flat), *labels.shape[1:]), labels.dtype) if found is None else found
            found[home == number] = labels[flat[home == number] - starts[number]]
        return None if found is None else found.reshape(*rows.shape, *found.shape[1:])

    def codes(self) -> np.ndarray:
        """Read the class numbers of all points, without their vectors.

        Returns
        -------
        ndarray
            (n,) int32; -1 for unknown classes.
        """
        return self._numbered("label", self.about.classes)

    def places(self, sources: Sequence[str]) -> np.ndarray:
        """Find points by their sources.

        Parameters
        ----------
        sources : sequence of str
            Sources of points.

        Returns
        -------
        ndarray
            (len(sources),) int64 positions among all points; -1 for unknown sources.
        """
        found = np.full(len(sources), -1, np.int64)
        which = self._numbered("source", sources)
        there = np.flatnonzero(which >= 0)
        found[which[there]] = there
        return found

    def _numbered(self, which: str, names: Sequence[str]) -> np.ndarray:
        """(n,) int32: the position in `names` of every point's value in a column, -1 for other values."""
        pa, compute = arrow()[0], import_module("pyarrow.compute")
        known, found = pa.array(list(names), pa.string()), [np.empty(0, np.int32)]
        for number, record in enumerate(self.records):
            if record["rows"]:
                place = compute.index_in(column(self.path(number), which), value_set=known)
                found.append(compute.fill_null(place, -1).to_numpy().astype(np.int32))
        return np.concatenate(found)

    def path(self, number: int) -> Path:
        """Return the file of one shard.

        Parameters
        ----------
        number : int
            Its position in the manifest, from 0.

        Returns
        -------
        Path
        """
        return self.folder / str(self.records[number]["file"])

    def starts(self) -> list[int]:
        """Return the position of each shard's first point among all points, and the number of points at the end.

        Returns
        -------
        list of int
        """
        return [0, *np.cumsum([int(record["rows"]) for record in self.records]).tolist()]

    def of(self, numbers: Iterable[int]) -> "Shards":
        """Return some of the shards.

        Parameters
        ----------
        numbers : iterable of int
            Their positions in the manifest.

        Returns
        -------
        Shards
        """
        return Shards(self.folder, self.about, [self.records[number] for number in numbers])

    def check_model(self, model: str) -> None:
        """Check that a model made these vectors: vectors of different weights cannot be compared.

        Parameters
        ----------
        model : str
            Version of the model's weights.

        Raises
        ------
        ValueError
            If other weights made them.
        """
        if self.about.model != model:
            raise ValueError(
                f"{self.folder} holds vectors of other weights (model {self.about.model[:12] or 'unknown'}, this one is {model[:12]}); "
                "embed the data again with this model, into another folder"
            )


def open_shards(folder: str | Path, *, verify: bool = False, partial: bool = False) -> Shards:
    """Open a folder of shards and check it: all shards exist and have the right size, and no id is there twice.

    Parameters
    ----------
    folder : path
        The folder, as `nearkin embed` or `nearkin shard` writes it.
    verify : bool, default=False
        Compare the content of every file with its checksum, too.
    partial : bool, default=False
        Accept a folder that is not complete yet.

    Returns
    -------
    Shards

    Raises
    ------
    FileNotFoundError
        If the folder has no shards.json.
    ShardDamagedError
        If a shard is missing or damaged, or the folder is incomplete or empty.
    ValueError
        If an id is there twice.

    Examples
    --------
    >>> from nearkin.data.shards import open_shards
    >>> open_shards("no such folder")
    Traceback (most recent call last):
        ...
    FileNotFoundError: no such folder holds no shards: it has no shards.json; `nearkin embed MODEL DATA --out 'no such folder'` makes them
    """
    folder = Path(folder)
    about, records = read_manifest(folder)
    if about.planned is not None and len(records) < about.planned and not partial:
        raise ShardDamagedError(f"{folder} is not complete: it has {len(records):,} of {about.planned:,} shards; {AGAIN}")
    for record in records:
        check_record(folder, record, whole=verify)
    found = Shards(folder, about, records)
    if not len(found):
        raise ShardDamagedError(f"{folder} holds no points; {AGAIN}")
    _check_ids(found)
    return found


def is_sharded(folder: str | Path) -> bool:
    """Return whether a folder holds shards.

    Parameters
    ----------
    folder : path
        Any path.

    Returns
    -------
    bool
    """
    return (Path(folder) / MANIFEST).is_file()


def read_manifest(folder: Path) -> tuple[About, list[dict[str, Any]]]:
    """Read shards.json.

    Parameters
    ----------
    folder : Path
        Folder of the shards.

    Returns
    -------
    about : About
        What all shards have in common.
    records : list of dict
        The record of every shard, in order.

    Raises
    ------
    FileNotFoundError
        If there is no shards.json.
    ShardDamagedError
        If it does not match its own checksum.
    """
    page = folder / MANIFEST
    if not page.is_file():
        make = f"`nearkin embed MODEL DATA --out {quote(str(folder))}` makes them"
        raise FileNotFoundError(f"{folder} holds no shards: it has no {MANIFEST}; {make}")
    body = read_checked_json(page)
    if body is None:
        raise ShardDamagedError(f"{page} is damaged: it does not match its own checksum; remove it and {AGAIN}")
    written = body["about"]
    shape = tuple(written["shape"]) if written.get("shape") else None
    about = About(**{**written, "classes": tuple(written["classes"]), "shape": shape})
    return about, sorted(body["shards"], key=_order)


def _order(record: Mapping[str, Any]) -> tuple[int, str]:
    return len(record["file"]), str(record["file"])  # 100000 after 99999


def write_manifest(folder: Path, about: About, records: Iterable[Mapping[str, Any]]) -> None:
    """Write shards.json, in one rename.

    Parameters
    ----------
    folder : Path
        Folder of the shards.
    about : About
        What all shards have in common.
    records : iterable of mapping
        The records that `write_shard` returned.
    """
    listed = sorted(records, key=_order)
    written = {**about.__dict__, "classes": list(about.classes), "shape": about.shape and list(about.shape)}
    body = {"format": 1, "about": written, "points": sum(r["rows"] for r in listed)}
    with explain_full_disk(folder, KEPT):
        write_checked_json(folder / MANIFEST, {**body, "shards": listed})


def _check_ids(shards: Shards) -> None:
    """Check that no id is in two shards. Only shards whose ranges of ids overlap are read."""
    ends = [(record["first"], record["last"], number) for number, record in enumerate(shards.records) if record["rows"]]
    kinds = {type(first) for first, _, _ in ends}
    if len(kinds) > 1:
        raise ValueError(f"{shards.folder}: some shards have numbers as ids and others texts; use one kind in all shards")
    ends.sort()
    group: list[int] = []
    last: Any = None
    for first, end, number in ends:
        if group and first > last:
            _check_overlap(shards, group)
            group = []
        last = end if not group else max(last, end)
        group.append(number)
    _check_overlap(shards, group)


def _check_overlap(shards: Shards, numbers: list[int]) -> None:
    if len(numbers) < 2:
        return
    ids = [shards.ids(number) for number in numbers]
    whole, home = np.concatenate(ids), np.repeat(numbers, [len(some) for some in ids])
    order = np.argsort(whole, kind="stable")
    twice = np.flatnonzero(whole[order][1:] == whole[order][:-1])
    if len(twice):
        a, b = (shards.path(int(home[order[twice[0] + side]])).name for side in (0, 1))
        raise ValueError(
            f"{shards.folder}: {a} and {b} both hold the id {whole[order[twice[0]]]}, and {len(twice):,} ids are there twice; "
            "embed into a new folder, or write one of the two with other ids"
        )
