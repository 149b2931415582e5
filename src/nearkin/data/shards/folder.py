"""A folder of shards: the manifest, and what must hold of all of them together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from nearkin.data.disk import read_page, room, write_page
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
    """A folder of shards, whole and of one model. Iterating yields one `Shard` after the other, empty ones left out."""

    def __init__(self, folder: Path, about: About, records: Sequence[Mapping[str, Any]]) -> None:
        self.folder, self.about, self.records = folder, about, tuple(records)

    def __len__(self) -> int:
        """Points in all shards."""
        return sum(int(record["rows"]) for record in self.records)

    def __iter__(self) -> Iterator[Shard]:
        return (self.read(number) for number, record in enumerate(self.records) if record["rows"])

    @property
    def dimension(self) -> int:
        return self.about.dimension

    def read(self, number: int, *, sources: bool = False) -> Shard:
        """One shard as it stands in the manifest, from 0."""
        return joined(list(self.parts(number, sources=sources)))

    def parts(self, number: int, *, sources: bool = False) -> Iterator[Shard]:
        """One shard, a row group at a time."""
        yield from row_groups(self.path(number), self.about, sources)

    def blocks(self) -> Iterator[Shard]:
        """All points in order, a row group at a time: the least memory."""
        for number, record in enumerate(self.records):
            if record["rows"]:
                yield from self.parts(number)

    def ids(self, number: int) -> np.ndarray:
        """The ids of one shard alone."""
        return ids_of(self.path(number))

    def labels(self) -> np.ndarray | None:
        """The labels of all points, without reading their vectors."""
        if self.about.supervision == "ids":
            return None
        found = [labels_of(column(self.path(number), "label"), self.about) for number in range(len(self.records))]
        return np.concatenate([labels for labels in found if labels is not None])

    def labels_at(self, rows: np.ndarray) -> np.ndarray | None:
        """The labels of the points at these places, in their shape, a shard at a time; those of numbers have one axis more."""
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
        """(n,) int32: the class numbers of all points, -1 where unknown, without reading their vectors."""
        return self._numbered("label", self.about.classes)

    def places(self, sources: Sequence[str]) -> np.ndarray:
        """(len(sources),) int64: where the point of each source stands among all, -1 if it is not there."""
        found = np.full(len(sources), -1, np.int64)
        which = self._numbered("source", sources)
        there = np.flatnonzero(which >= 0)
        found[which[there]] = there
        return found

    def _numbered(self, which: str, names: Sequence[str]) -> np.ndarray:
        """(n,) int32: the place in `names` of what stands in a column of every point, -1 if nowhere."""
        pa, compute = arrow()[0], import_module("pyarrow.compute")
        known, found = pa.array(list(names), pa.string()), [np.empty(0, np.int32)]
        for number, record in enumerate(self.records):
            if record["rows"]:
                place = compute.index_in(column(self.path(number), which), value_set=known)
                found.append(compute.fill_null(place, -1).to_numpy().astype(np.int32))
        return np.concatenate(found)

    def path(self, number: int) -> Path:
        return self.folder / str(self.records[number]["file"])

    def starts(self) -> list[int]:
        """Where each shard begins among all points, and their number at the end."""
        return [0, *np.cumsum([int(record["rows"]) for record in self.records]).tolist()]

    def of(self, numbers: Iterable[int]) -> "Shards":
        """Only some of the shards."""
        return Shards(self.folder, self.about, [self.records[number] for number in numbers])

    def check_model(self, model: str) -> None:
        """Vectors of other weights cannot be compared."""
        if self.about.model != model:
            raise ValueError(
                f"{self.folder} holds vectors of other weights (model {self.about.model[:12] or 'unknown'}, this one is {model[:12]}); "
                "embed the data again with this model, into another folder"
            )


def open_shards(folder: str | Path, *, verify: bool = False, partial: bool = False) -> Shards:
    """The shards of a folder, checked: all there, of the right size, no id twice; with `verify` every byte against its checksum.

    A folder that is still being filled is refused unless `partial`.
    """
    folder = Path(folder)
    about, records = read_manifest(folder)
    if about.planned is not None and len(records) < about.planned and not partial:
        raise ShardDamagedError(f"{folder} is not whole: {len(records):,} of {about.planned:,} shards are there; {AGAIN}")
    for record in records:
        check_record(folder, record, whole=verify)
    found = Shards(folder, about, records)
    if not len(found):
        raise ShardDamagedError(f"{folder} holds no points; {AGAIN}")
    _check_ids(found)
    return found


def is_sharded(folder: str | Path) -> bool:
    """Whether a folder is one of shards."""
    return (Path(folder) / MANIFEST).is_file()


def read_manifest(folder: Path) -> tuple[About, list[dict[str, Any]]]:
    """What shards.json says, shards in order."""
    page = folder / MANIFEST
    if not page.is_file():
        make = f"`nearkin embed MODEL DATA --out {quote(str(folder))}` makes them"
        raise FileNotFoundError(f"{folder} holds no shards: it has no {MANIFEST}; {make}")
    body = read_page(page)
    if body is None:
        raise ShardDamagedError(f"{page} is damaged: it does not match its own checksum; remove it and {AGAIN}")
    told = body["about"]
    shape = tuple(told["shape"]) if told.get("shape") else None
    about = About(**{**told, "classes": tuple(told["classes"]), "shape": shape})
    return about, sorted(body["shards"], key=_order)


def _order(record: Mapping[str, Any]) -> tuple[int, str]:
    return len(record["file"]), str(record["file"])  # 100000 after 99999


def write_manifest(folder: Path, about: About, records: Iterable[Mapping[str, Any]]) -> None:
    """Swap shards.json for one that names these shards."""
    listed = sorted(records, key=_order)
    told = {**about.__dict__, "classes": list(about.classes), "shape": about.shape and list(about.shape)}
    body = {"format": 1, "about": told, "points": sum(r["rows"] for r in listed)}
    with room(folder, KEPT):
        write_page(folder / MANIFEST, {**body, "shards": listed})


def _check_ids(shards: Shards) -> None:
    """No id in two shards. Shards whose ids lie apart, as ours do, are not read for that."""
    ends = [(record["first"], record["last"], number) for number, record in enumerate(shards.records) if record["rows"]]
    kinds = {type(first) for first, _, _ in ends}
    if len(kinds) > 1:
        raise ValueError(f"{shards.folder}: some shards have numbers for ids and some texts; write them all alike")
    ends.sort()
    group: list[int] = []
    last: Any = None
    for first, end, number in ends:
        if group and first > last:
            _check_apart(shards, group)
            group = []
        last = end if not group else max(last, end)
        group.append(number)
    _check_apart(shards, group)


def _check_apart(shards: Shards, numbers: list[int]) -> None:
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
            "an id is one point: embed into a fresh folder, or write one of the two with other ids"
        )
