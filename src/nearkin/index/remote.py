"""A model folder whose index is in Milvus: milvus.json says where, and nothing else of it lies in the folder.

nearkin index runs/photos photos/ --backend milvus --uri photos.db
nearkin search runs/photos query.jpg
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import numpy as np

from nearkin.data.corrections import source_names
from nearkin.data.dataset import Dataset
from nearkin.data.disk import read_checked_json, write_checked_json
from nearkin.data.progress import Report, Ticker
from nearkin.data.shards import Shards
from nearkin.index.collection import ADDRESS, Added, Query, embedded_entries, model_version, neighbors_of
from nearkin.index.contract import Answer, Where
from nearkin.index.milvus import MilvusIndex
from nearkin.index.milvus_load import Progress, load_shards
from nearkin.models.folder import Model, load

TOKEN = "NEARKIN_MILVUS_TOKEN"  # of the environment: what a server that knows its users asks for
ASKED = 1000  # sources looked for at once


@dataclass(frozen=True)
class Address:
    """Where an index is: a path that ends in .db, or http://host:port; and the collection's name there."""

    uri: str
    name: str = "nearkin"


class RemoteCollection:
    """A model and its index in Milvus. `open_remote` and `make_remote` make one."""

    def __init__(self, folder: Path, model: Model, index: MilvusIndex) -> None:
        self.folder, self.model, self.index = folder, model, index

    def search(self, query: Query, k: int = 10, *, where: Where | None = None) -> Answer:
        """The k nearest points to an image file, to the point with an id (itself left out), or to an embedding (d,)."""
        return neighbors_of(self.model, self.index, query, k, where)

    def search_files(self, paths: Sequence[str | Path], k: int = 10, *, where: Where | None = None) -> list[Answer]:
        """The same for several image files at once."""
        return self.index.search(np.asarray(self.model.encode(list(paths))), k, where=where)

    def add(self, data: Dataset, report: Report | None = None) -> Added:
        """Add what is not there yet by its source, a batch after the other; an interrupted add goes on where it stopped."""
        sources, fresh = source_names(data), list[int]()
        for start in range(0, len(sources), ASKED):
            known = self.index.known_sources(sources[start : start + ASKED])
            fresh += [row for row in range(start, min(start + ASKED, len(sources))) if sources[row] not in known]
        added = 0
        for entries in embedded_entries(self.folder, self.model, data, fresh, report) if fresh else ():
            self.index.add(entries)
            added += len(entries)
        self.index.settle()
        return Added(added, len(data) - len(fresh), len(fresh) - added)

    def load(self, shards: Shards, report: Report | None = None) -> int:
        """Load shards, or what is missing of them; how many points they hold."""
        ticker = Ticker(report, f"loading {shards.folder}", len(shards), "points")
        for step in load_shards(self.index, shards):
            ticker.update(step.points)
        return len(shards)


def address(folder: str | Path) -> Address | None:
    """Where the index of a model folder is, if it is in Milvus."""
    page = Path(folder) / ADDRESS
    body = read_checked_json(page) if page.exists() else None
    return None if body is None else Address(body["uri"], body["name"])


def open_remote(folder: str | Path, *, device: str | None = None) -> RemoteCollection:
    """The model of a folder with its index in Milvus, ready to be asked; made by another model, it is refused."""
    folder, place = Path(folder), address(folder)
    if place is None:
        make = f"`nearkin index {quote(str(folder))} DATA --backend milvus --uri URI` makes one"
        raise FileNotFoundError(f"{folder} has no index in Milvus; {make}")
    model = load(folder, device=device)
    index = MilvusIndex.open(place.uri, name=place.name, model=model_version(folder), token=_token())
    return RemoteCollection(folder, model, index)


def make_remote(
    folder: str | Path, place: Address, *, kind: str = "FLAT", replace: bool = False, again: bool = False, device: str | None = None
) -> RemoteCollection:
    """An empty index in Milvus for a model folder. With `replace` what is there is dropped first, with `again` it is taken as it is."""
    folder = Path(folder)
    model, version = load(folder, device=device), model_version(folder)
    place = Address(os.path.abspath(place.uri) if "://" not in place.uri else place.uri, place.name)
    about = {"metric": str(model.about["metric"]), "dimension": int(model.about["network"]["dimension"])}
    if (folder / "index" / "manifest.json").exists():
        raise FileExistsError(f"{folder} has an index of its own already; remove {folder / 'index'} to have it in Milvus instead")
    before = address(folder)
    if before is not None and before != place and not replace:
        raise FileExistsError(
            f"{folder} has its index in {before.uri}, {before.name}; add to that, or make one here by --replace, which leaves that alone"
        )
    if replace:
        _drop(place)
    try:
        index = MilvusIndex.create(place.uri, name=place.name, model=version, kind=kind, token=_token(), **about)  # type: ignore[arg-type]
    except FileExistsError:
        if not again:
            raise
        index = MilvusIndex.open(place.uri, name=place.name, model=version, token=_token())
    write_checked_json(folder / ADDRESS, {"uri": place.uri, "name": place.name})
    return RemoteCollection(folder, model, index)


def _drop(place: Address) -> None:
    try:
        index = MilvusIndex.open(place.uri, name=place.name, token=_token())
    except FileNotFoundError:
        return
    Progress(index.client, index.name).forget()
    index.drop()


def _token() -> str:
    return os.environ.get(TOKEN, "")
