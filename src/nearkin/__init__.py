"""nearkin learns embeddings whose nearest neighbors are right: from class labels, numbers, label sets, or no labels at all.

Names are imported when first used, so that `import nearkin` takes milliseconds.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOMES = {
    "nearkin.compose.points": ("Points", "encode_labels"),
    "nearkin.objectives": (
        "NCA",
        "AdaCos",
        "Angular",
        "ArcFace",
        "BarlowTwins",
        "CenterLoss",
        "CenterPull",
        "Circle",
        "Contrastive",
        "CosFace",
        "DeepCluster",
        "DirectRegression",
        "FastAP",
        "Hinge",
        "Histogram",
        "InfoNCE",
        "InstanceDiscrimination",
        "LargeMarginSoftmax",
        "LiftedStructure",
        "MarginLoss",
        "Matryoshka",
        "MultiSimilarity",
        "NCARegression",
        "NPair",
        "NTXent",
        "NearestClassMean",
        "NeighborTargets",
        "NeighborhoodDiscovery",
        "NeighborhoodObjective",
        "NoiseAsTargets",
        "NormalizedSoftmax",
        "Objective",
        "PrecisionAtK",
        "ProxyAnchor",
        "ProxyNCA",
        "RankedList",
        "RecallAtK",
        "SignalToNoiseContrastive",
        "SmoothAP",
        "SoftTriple",
        "Softmax",
        "SphereFace",
        "SubCenterArcFace",
        "SupCon",
        "Triplet",
        "TupletMargin",
        "VICReg",
        "WeightedSum",
    ),
    "nearkin.search": ("nearest",),
    "nearkin.evaluate": ("classification", "clustering", "knn_accuracy", "knn_predict", "retrieval"),
    "nearkin.estimators": (
        "NeighborhoodClassifier",
        "NeighborhoodEmbedding",
        "NeighborhoodRegressor",
        "TabularNCAClassifier",
        "TabularNCARegressor",
    ),
    "nearkin.estimators.linear": ("LMNN", "MLKR", "LinearNCA", "LinearNCARegression", "ProbabilisticPCA"),
    "nearkin.objectives.papers": ("cite",),
    "nearkin.models.folder": ("load",),
    "nearkin.index.collection": ("open_index",),
    "nearkin.index.contract": ("Where",),
    "nearkin.index.given": ("index_vectors",),
    "nearkin.data.shards": ("open_shards",),
    "nearkin.serve.notebook": ("show",),
}
__all__ = ["__version__", *(name for names in _HOMES.values() for name in names)]  # noqa: PLE0604

if TYPE_CHECKING:
    from nearkin.compose.points import Points as Points
    from nearkin.compose.points import encode_labels as encode_labels
    from nearkin.data.shards import open_shards as open_shards
    from nearkin.estimators import NeighborhoodClassifier as NeighborhoodClassifier
    from nearkin.estimators import NeighborhoodEmbedding as NeighborhoodEmbedding
    from nearkin.estimators import NeighborhoodRegressor as NeighborhoodRegressor
    from nearkin.estimators import TabularNCAClassifier as TabularNCAClassifier
    from nearkin.estimators import TabularNCARegressor as TabularNCARegressor
    from nearkin.estimators.linear import LMNN as LMNN
    from nearkin.estimators.linear import MLKR as MLKR
    from nearkin.estimators.linear import LinearNCA as LinearNCA
    from nearkin.estimators.linear import LinearNCARegression as LinearNCARegression
    from nearkin.estimators.linear import ProbabilisticPCA as ProbabilisticPCA
    from nearkin.evaluate import classification as classification
    from nearkin.evaluate import clustering as clustering
    from nearkin.evaluate import knn_accuracy as knn_accuracy
    from nearkin.evaluate import knn_predict as knn_predict
    from nearkin.evaluate import retrieval as retrieval
    from nearkin.index.collection import open_index as open_index
    from nearkin.index.contract import Where as Where
    from nearkin.index.given import index_vectors as index_vectors
    from nearkin.models.folder import load as load
    from nearkin.objectives import *  # noqa: F403
    from nearkin.objectives.papers import cite as cite
    from nearkin.search import nearest as nearest
    from nearkin.serve.notebook import show as show


def _lazy_exports(room: str, homes: Mapping[str, tuple[str, ...]], name: str, hint: Callable[[str], str] = lambda _: "") -> Any:
    """The public name of a room, imported from its home when first asked for; `hint` ends the error of an unknown one."""
    for home, names in homes.items():
        if name in names:
            value = getattr(import_module(home), name)
            setattr(sys.modules[room], name, value)
            return value
    raise AttributeError(f"module {room!r} has no attribute {name!r}{hint(name)}")


_ROOMS = (
    *("compose", "kernels", "objectives", "data", "models", "search", "index", "train", "evaluate", "report", "estimators", "serve"),
    *("cluster", "cli"),
)
_PARTS = ("affinity", "relation", "criterion", "references")  # of compose, under the names by which people look for them


def __getattr__(name: str) -> Any:
    if name in _ROOMS or name in _PARTS:
        return import_module(f"nearkin.{name}" if name in _ROOMS else f"nearkin.compose.{name}")
    return _lazy_exports(__name__, _HOMES, name, _where)


def _where(name: str) -> str:
    """Where a name stands that is not among those of the package: in a room, or without the `Loss` of other libraries."""
    if name.startswith("_"):
        return ""
    room = next((room for room in ("compose", "data", "search", "evaluate") if name in import_module(f"nearkin.{room}").__all__), None)
    if room is not None:
        return f"; it is nearkin.{room}.{name}"
    short = name.removesuffix("Loss")
    return f"; it is nearkin.{short}" if short in __all__ else ""


def __dir__() -> list[str]:
    return sorted(__all__)
