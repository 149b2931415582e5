"""nearkin: your nearest neighbours should be your kin.

Learn embeddings whose nearest neighbours are right, from class labels, from numbers, or from no labels at all.
Names are imported when first used, so that `import nearkin` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "nearkin.points": ("Points", "encode_labels", "strangers"),
    "nearkin.objectives": (
        "NCA",
        "Angular",
        "CentreLoss",
        "CentrePull",
        "Contrastive",
        "DeepCluster",
        "Hinge",
        "InstanceDiscrimination",
        "LargeMarginSoftmax",
        "LiftedStructure",
        "NCARegression",
        "NPair",
        "NearestClassMean",
        "NeighbourhoodDiscovery",
        "NeighbourhoodObjective",
        "NoiseAsTargets",
        "NormalisedSoftmax",
        "Objective",
        "PrecisionAtK",
        "ProxyNCA",
        "Softmax",
        "Triplet",
        "WeightedSum",
    ),
    "nearkin.references.anchors": ("assign", "circle", "orthonormal", "packed", "polar_grid", "simplex", "smallest_angle"),
    "nearkin.search": ("nearest",),
    "nearkin.evaluate": ("classification", "clustering", "knn_accuracy", "knn_predict", "retrieval"),
    "nearkin.estimators": ("NeighbourhoodClassifier", "NeighbourhoodEmbedding", "NeighbourhoodRegressor"),
    "nearkin.linear": ("LMNN", "MLKR", "LinearNCA", "LinearNCARegression", "ProbabilisticPCA"),
    "nearkin.papers": ("cite",),
    "nearkin.model": ("load",),
    "nearkin.collection": ("open_index",),
    "nearkin.search.contract": ("Where",),
    "nearkin.shards": ("open_shards",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]  # noqa: PLE0604

if TYPE_CHECKING:
    from nearkin.collection import open_index as open_index
    from nearkin.estimators import NeighbourhoodClassifier as NeighbourhoodClassifier
    from nearkin.estimators import NeighbourhoodEmbedding as NeighbourhoodEmbedding
    from nearkin.estimators import NeighbourhoodRegressor as NeighbourhoodRegressor
    from nearkin.evaluate import classification as classification
    from nearkin.evaluate import clustering as clustering
    from nearkin.evaluate import knn_accuracy as knn_accuracy
    from nearkin.evaluate import knn_predict as knn_predict
    from nearkin.evaluate import retrieval as retrieval
    from nearkin.linear import LMNN as LMNN
    from nearkin.linear import MLKR as MLKR
    from nearkin.linear import LinearNCA as LinearNCA
    from nearkin.linear import LinearNCARegression as LinearNCARegression
    from nearkin.linear import ProbabilisticPCA as ProbabilisticPCA
    from nearkin.model import load as load
    from nearkin.objectives import *  # noqa: F403
    from nearkin.papers import cite as cite
    from nearkin.points import Points as Points
    from nearkin.points import encode_labels as encode_labels
    from nearkin.points import strangers as strangers
    from nearkin.references.anchors import assign as assign
    from nearkin.references.anchors import circle as circle
    from nearkin.references.anchors import orthonormal as orthonormal
    from nearkin.references.anchors import packed as packed
    from nearkin.references.anchors import polar_grid as polar_grid
    from nearkin.references.anchors import simplex as simplex
    from nearkin.references.anchors import smallest_angle as smallest_angle
    from nearkin.search import nearest as nearest
    from nearkin.search.contract import Where as Where
    from nearkin.shards import open_shards as open_shards


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'nearkin' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
