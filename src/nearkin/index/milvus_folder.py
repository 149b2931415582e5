"""A model folder whose index is in Milvus: its file milvus.json holds the address of the index.

nearkin index runs/photos photos/ --backend milvus --uri photos.db
nearkin search runs/photos query.jpg
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearkin.data.disk import read_checked_json, write_checked_json
from nearkin.index.milvus import MilvusIndex
from nearkin.index.milvus_load import Progress

ADDRESS = "milvus.json"
TOKEN = "NEARKIN_MILVUS_TOKEN"  # environment variable, for servers that authenticate their users


@dataclass(frozen=True)
class Address:
    """Where an index is: a path that ends in .db, or http://host:port; and the name of the collection there."""

    uri: str
    name: str = "nearkin"


def address(folder: str | Path) -> Address | None:
    """Where the index of a model folder is, if it is in Milvus."""
    page = Path(folder) / ADDRESS
    body = read_checked_json(page) if page.exists() else None
    return None if body is None else Address(body["uri"], body["name"])


def open_in_milvus(place: Address, version: str | None = None) -> MilvusIndex:
    """The index at an address; with the version of a model, one made by another model is refused."""
    return MilvusIndex.open(place.uri, name=place.name, model=version, token=_token())


def create_in_milvus(
    folder: Path, place: Address, about: dict[str, Any], *, kind: str = "FLAT", replace: bool = False, keep: bool = False
) -> MilvusIndex:
    """Create the index of a model folder in Milvus; `about` are the arguments model, metric and dimension of `MilvusIndex.create`.

    With `replace` an index at this address is dropped first. With `keep` it is opened instead.
    """
    place = Address(os.path.abspath(place.uri) if "://" not in place.uri else place.uri, place.name)
    if (folder / "index" / "manifest.json").exists():
        raise FileExistsError(f"{folder} already has a local index; remove {folder / 'index'} to create one in Milvus instead")
    before = address(folder)
    if before is not None and before != place and not replace:
        raise FileExistsError(
            f"{folder} has its index in {before.uri}, {before.name}; add to that one, or pass --replace to create a new one here "
            "(the other one is not deleted)"
        )
    if replace:
        _drop(place)
    try:
        index = MilvusIndex.create(place.uri, name=place.name, kind=kind, token=_token(), **about)
    except FileExistsError:
        if not keep:
            raise
        index = open_in_milvus(place, about["model"])
    write_checked_json(folder / ADDRESS, {"uri": place.uri, "name": place.name})
    return index


def _drop(place: Address) -> None:
    try:
        index = open_in_milvus(place)
    except FileNotFoundError:
        return
    Progress(index.client, index.name).forget()
    index.drop()


def _token() -> str:
    return os.environ.get(TOKEN, "")
