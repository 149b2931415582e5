"""Cluster: embedding, exact search, discovery and evaluation over folders of shards, in this process or on a Ray cluster.

A folder of shards holds more points than fit in memory. `embed` writes one, `nearest_over` searches it exactly, `discover_over` finds
neighborhoods in it, and `judge` evaluates neighbors in it. All of them run in this process by default, and on a Ray cluster with
`engine="ray"` (`pip install 'nearkin[ray]'`), with the same results. Names are imported when first used.
"""

from typing import TYPE_CHECKING, Any

from nearkin import _lazy_exports

_HOMES = {
    "nearkin.cluster.embedding": ("Embedded", "embed"),
    "nearkin.cluster.evaluate": ("Compute", "Queries", "judge"),
    "nearkin.cluster.search": ("discover_over", "nearest_over"),
}
__all__ = ["Compute", "Embedded", "Queries", "discover_over", "embed", "judge", "nearest_over"]

if TYPE_CHECKING:
    from nearkin.cluster.embedding import Embedded as Embedded
    from nearkin.cluster.embedding import embed as embed
    from nearkin.cluster.evaluate import Compute as Compute
    from nearkin.cluster.evaluate import Queries as Queries
    from nearkin.cluster.evaluate import judge as judge
    from nearkin.cluster.search import discover_over as discover_over
    from nearkin.cluster.search import nearest_over as nearest_over


def __getattr__(name: str) -> Any:
    return _lazy_exports(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
