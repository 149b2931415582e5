"""Index: embedded points that can be searched, on this disk or in Milvus, behind one contract.

A `Collection` is a model folder and its index: `open_index` opens one, `build_index` makes one. Names are imported when first used.
"""

from typing import TYPE_CHECKING, Any

from nearkin import _lazy_exports

_HOMES = {
    "nearkin.index.collection": (
        "Collection",
        "build_index",
        "open_index",
    ),
    "nearkin.index.contract": (
        "Answer",
        "Entries",
        "Entry",
        "Hit",
        "VectorIndex",
        "Where",
    ),
    "nearkin.index.local": ("LocalIndex",),
    "nearkin.index.milvus": ("MilvusIndex",),
}
__all__ = [*(name for names in _HOMES.values() for name in names)]  # noqa: PLE0604

if TYPE_CHECKING:
    from nearkin.index.collection import Collection as Collection
    from nearkin.index.collection import build_index as build_index
    from nearkin.index.collection import open_index as open_index
    from nearkin.index.contract import Answer as Answer
    from nearkin.index.contract import Entries as Entries
    from nearkin.index.contract import Entry as Entry
    from nearkin.index.contract import Hit as Hit
    from nearkin.index.contract import VectorIndex as VectorIndex
    from nearkin.index.contract import Where as Where
    from nearkin.index.local import LocalIndex as LocalIndex
    from nearkin.index.milvus import MilvusIndex as MilvusIndex


def __getattr__(name: str) -> Any:
    return _lazy_exports(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
