"""A model folder whose index is in Milvus: its file milvus.json holds the address of the index.

nearkin index runs/photos photos/ --backend milvus --uri photos.db
nearkin search runs/photos query.jpg
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from nearkin.data.disk import FileDamagedError, read_checked_json, write_checked_json
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
    """Where the index of a model folder is, if it is in Milvus. The maker of the folder has written this: see `confirmed_address`."""
    page = Path(folder) / ADDRESS
    if not page.exists():
        return None
    body = read_checked_json(page)
    if body is None or not isinstance(body.get("uri"), str) or not isinstance(body.get("name"), str):
        raise FileDamagedError(f"{page} is damaged: it names no address; index the data again with --backend milvus --uri URI")
    uri = body["uri"]
    return Address(uri if "://" in uri else os.path.join(os.path.realpath(folder), uri), body["name"])


def confirmed_address(folder: str | Path, uri: str | None = None) -> Address | None:
    """The same, if the user has named the address: now as `uri`, or before, when it was indexed or opened here.

    A folder may come from others, and its address would get the user's queries and token. A file inside the folder needs no confirmation.
    """
    place = address(folder)
    if place is None:
        if uri is not None:
            raise ValueError(f"uri {uri!r}: the index of {folder} is not in Milvus; leave it out")
        return None
    named = None if uri is None else _absolute(uri)
    if named is not None and named != place.uri:
        raise ValueError(f"uri {uri!r} is not the address in {Path(folder) / ADDRESS}, which is {place.uri!r}; pass that one to confirm it")
    inside = "://" not in place.uri and Path(os.path.realpath(place.uri)).is_relative_to(os.path.realpath(folder))
    if named is None and not inside and place.uri not in _confirmed():
        raise ValueError(
            f"{Path(folder) / ADDRESS} names {place.uri!r}, which you have not confirmed: your queries and your token would be "
            f"sent there. If it is right, pass it once: --uri {quote(place.uri)} (uri= in Python)"
        )
    if named is not None and not inside:
        confirm(place.uri)
    return place


def confirm(uri: str) -> None:
    """Remember an address that the user has named, in the settings of the user; where those cannot be written it is named again."""
    known = _confirmed()
    if uri in known:
        return
    with suppress(OSError):
        page = _confirmed_page()
        page.parent.mkdir(parents=True, exist_ok=True)
        write_checked_json(page, {"uris": sorted({*known, uri})})


def _confirmed() -> set[str]:
    page = _confirmed_page()
    body = read_checked_json(page) if page.is_file() else None
    return set() if body is None else set(body.get("uris", ()))


def _confirmed_page() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "nearkin" / "milvus-addresses.json"


def _absolute(uri: str) -> str:
    return uri if "://" in uri else os.path.realpath(uri)


def open_in_milvus(place: Address, version: str | None = None) -> MilvusIndex:
    """The index at an address; with the version of a model, one made by another model is refused."""
    return MilvusIndex.open(place.uri, name=place.name, model=version, token=_token())


def create_in_milvus(
    folder: Path, place: Address, about: dict[str, Any], *, kind: str = "FLAT", replace: bool = False, keep: bool = False
) -> MilvusIndex:
    """Create the index of a model folder in Milvus; `about` are the arguments model, metric and dimension of `MilvusIndex.create`.

    With `replace` an index at this address is dropped first. With `keep` it is opened instead.
    """
    place = Address(_absolute(place.uri), place.name)
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
    inside = "://" not in place.uri and Path(place.uri).is_relative_to(os.path.realpath(folder))
    kept = os.path.relpath(place.uri, os.path.realpath(folder)) if inside else place.uri  # so that the folder can be moved
    write_checked_json(folder / ADDRESS, {"uri": kept, "name": place.name})
    if not inside:
        confirm(place.uri)
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
