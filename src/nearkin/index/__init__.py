"""Index: embeddings that can be searched, in a folder on disk or in Milvus, behind one contract.

A `Collection` is a model and its index: `open_index` opens one, `build_index` creates one. `VectorIndex` is the contract that `LocalIndex`
and `MilvusIndex` implement: add `Entries`, search with an optional filter (`Where`), and get an `Answer` of `Hit`s per query. Names are
imported when first used.
"""

from typing import TYPE_CHECKING, Any

from nearkin import _lazy_exports

_HOMES = {
    "nearkin.index.collection": (
        "Added",
        "Collection",
        "Vote",
        "build_index",
        "open_index",
    ),
    "nearkin.index.contract": (
        "Answer",
        "Entries",
        "Entry",
        "Hit",
        "Page",
        "StoredPoints",
        "VectorIndex",
        "Where",
    ),
    "nearkin.index.given": ("index_vectors",),
    "nearkin.index.local": ("LocalIndex",),
    "nearkin.index.milvus": ("MilvusIndex",),
    "nearkin.index.milvus_load": (
        "Loaded",
        "load_shards",
    ),
}
__all__ = [*(name for names in _HOMES.values() for name in names)]  # noqa: PLE0604

if TYPE_CHECKING:
    from nearkin.index.collection import Added as Added
    from nearkin.index.collection import Collection as Collection
    from nearkin.index.collection import Vote as Vote
    from nearkin.index.collection import build_index as build_index
    from nearkin.index.collection import open_index as open_index
    from nearkin.index.contract import Answer as Answer
    from nearkin.index.contract import Entries as Entries
    from nearkin.index.contract import Entry as Entry
    from nearkin.index.contract import Hit as Hit
    from nearkin.index.contract import Page as Page
    from nearkin.index.contract import StoredPoints as StoredPoints
    from nearkin.index.contract import VectorIndex as VectorIndex
    from nearkin.index.contract import Where as Where
    from nearkin.index.given import index_vectors as index_vectors
    from nearkin.index.local import LocalIndex as LocalIndex
    from nearkin.index.milvus import MilvusIndex as MilvusIndex
    from nearkin.index.milvus_load import Loaded as Loaded
    from nearkin.index.milvus_load import load_shards as load_shards


def __getattr__(name: str) -> Any:
    return _lazy_exports(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
