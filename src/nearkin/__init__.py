"""nearkin: your nearest neighbours should be your kin.

Learn embeddings whose nearest neighbours are right, from class labels, from numbers, or from no labels at all.
Names are imported when first used, so that `import nearkin` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "nearkin.compose.points": ("Points", "encode_labels", "strangers"),
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
    "nearkin.compose.references.anchors": ("assign", "circle", "orthonormal", "packed", "polar_grid", "simplex", "smallest_angle"),
    "nearkin.search": ("nearest",),
    "nearkin.evaluate": ("classification", "clustering", "knn_accuracy", "knn_predict", "retrieval"),
    "nearkin.estimators": ("NeighbourhoodClassifier", "NeighbourhoodEmbedding", "NeighbourhoodRegressor"),
    "nearkin.estimators.linear": ("LMNN", "MLKR", "LinearNCA", "LinearNCARegression", "ProbabilisticPCA"),
    "nearkin.objectives.papers": ("cite",),
    "nearkin.models.folder": ("load",),
    "nearkin.index.collection": ("open_index",),
    "nearkin.index.contract": ("Where",),
    "nearkin.data.shards": ("open_shards",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]  # noqa: PLE0604

if TYPE_CHECKING:
    from nearkin.compose.points import Points as Points
    from nearkin.compose.points import encode_labels as encode_labels
    from nearkin.compose.points import strangers as strangers
    from nearkin.compose.references.anchors import assign as assign
    from nearkin.compose.references.anchors import circle as circle
    from nearkin.compose.references.anchors import orthonormal as orthonormal
    from nearkin.compose.references.anchors import packed as packed
    from nearkin.compose.references.anchors import polar_grid as polar_grid
    from nearkin.compose.references.anchors import simplex as simplex
    from nearkin.compose.references.anchors import smallest_angle as smallest_angle
    from nearkin.data.shards import open_shards as open_shards
    from nearkin.estimators import NeighbourhoodClassifier as NeighbourhoodClassifier
    from nearkin.estimators import NeighbourhoodEmbedding as NeighbourhoodEmbedding
    from nearkin.estimators import NeighbourhoodRegressor as NeighbourhoodRegressor
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
    from nearkin.models.folder import load as load
    from nearkin.objectives import *  # noqa: F403
    from nearkin.objectives.papers import cite as cite
    from nearkin.search import nearest as nearest


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'nearkin' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
