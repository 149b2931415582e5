"""Compose: the sentence every objective is made of, objective = references x affinity x relation x criterion.

Points are what queries and references are made of. An affinity says how near each reference IS, a relation how near each SHOULD be, a
criterion what the difference costs, and references say who may be chosen. This room also holds the table of metrics an index can use
and the checks of plain arguments. Names are imported when first used.
"""

from typing import TYPE_CHECKING, Any

from nearkin import _lazy_exports

_HOMES = {
    "nearkin.compose.points": (
        "Points",
        "encode_labels",
        "fresh_ids",
    ),
    "nearkin.compose.affinity": (
        "Affinity",
        "Affine",
        "Euclidean",
        "Hamming",
        "InnerProduct",
        "MinusDistance",
        "Normalized",
        "SquaredEuclidean",
        "cosine",
        "unit",
    ),
    "nearkin.compose.relation": (
        "LabelDistance",
        "LabelOverlap",
        "Layout",
        "ListedNeighbors",
        "Related",
        "Relation",
        "SameId",
        "SameLabel",
        "SameLabelApart",
        "squared_distance",
    ),
    "nearkin.compose.criterion": (
        "BestK",
        "Criterion",
        "OneVersusRest",
        "Pairs",
        "any_positive",
        "attraction",
        "each_positive",
        "expected_cost",
        "mean_positive",
    ),
    "nearkin.compose.triplets": ("Triplets",),
    "nearkin.compose.margins": ("MarginSoftmax",),
    "nearkin.compose.several_vectors": ("NearestVector", "SignalToNoise", "SoftNearestVector"),
    "nearkin.compose.ranks": ("BinnedPrecision", "SmoothPrecision", "SmoothRecall"),
    "nearkin.compose.pair_weights": (
        "BalancedPairs",
        "CirclePairs",
        "HistogramOverlap",
        "MultiSimilarityPairs",
        "ProxyPairs",
        "RankedPairs",
        "ThresholdPairs",
        "TupletPairs",
        "each_pair",
    ),
    "nearkin.compose.outcome": (
        "Outcome",
        "reduce",
    ),
    "nearkin.compose.references": (
        "Anchors",
        "Centers",
        "ClassBank",
        "CrossBatchMemory",
        "InBatch",
        "MemoryBank",
        "MomentumQueue",
        "OnePerClass",
        "Proxies",
        "References",
    ),
    "nearkin.compose.references.anchors": (
        "assign",
        "circle",
        "orthonormal",
        "packed",
        "simplex",
        "smallest_angle",
    ),
    "nearkin.compose.metrics": ("FORMS", "METRICS"),
    "nearkin.compose.routes": ("Composition", "plan"),
}
__all__ = [*(name for names in _HOMES.values() for name in names)]  # noqa: PLE0604

if TYPE_CHECKING:
    from nearkin.compose.affinity import Affine as Affine
    from nearkin.compose.affinity import Affinity as Affinity
    from nearkin.compose.affinity import Euclidean as Euclidean
    from nearkin.compose.affinity import Hamming as Hamming
    from nearkin.compose.affinity import InnerProduct as InnerProduct
    from nearkin.compose.affinity import MinusDistance as MinusDistance
    from nearkin.compose.affinity import Normalized as Normalized
    from nearkin.compose.affinity import SquaredEuclidean as SquaredEuclidean
    from nearkin.compose.affinity import cosine as cosine
    from nearkin.compose.affinity import unit as unit
    from nearkin.compose.criterion import BestK as BestK
    from nearkin.compose.criterion import Criterion as Criterion
    from nearkin.compose.criterion import OneVersusRest as OneVersusRest
    from nearkin.compose.criterion import Pairs as Pairs
    from nearkin.compose.criterion import any_positive as any_positive
    from nearkin.compose.criterion import attraction as attraction
    from nearkin.compose.criterion import each_positive as each_positive
    from nearkin.compose.criterion import expected_cost as expected_cost
    from nearkin.compose.criterion import mean_positive as mean_positive
    from nearkin.compose.margins import MarginSoftmax as MarginSoftmax
    from nearkin.compose.metrics import FORMS as FORMS
    from nearkin.compose.metrics import METRICS as METRICS
    from nearkin.compose.outcome import Outcome as Outcome
    from nearkin.compose.outcome import reduce as reduce
    from nearkin.compose.pair_weights import BalancedPairs as BalancedPairs
    from nearkin.compose.pair_weights import CirclePairs as CirclePairs
    from nearkin.compose.pair_weights import HistogramOverlap as HistogramOverlap
    from nearkin.compose.pair_weights import MultiSimilarityPairs as MultiSimilarityPairs
    from nearkin.compose.pair_weights import ProxyPairs as ProxyPairs
    from nearkin.compose.pair_weights import RankedPairs as RankedPairs
    from nearkin.compose.pair_weights import ThresholdPairs as ThresholdPairs
    from nearkin.compose.pair_weights import TupletPairs as TupletPairs
    from nearkin.compose.pair_weights import each_pair as each_pair
    from nearkin.compose.points import Points as Points
    from nearkin.compose.points import encode_labels as encode_labels
    from nearkin.compose.points import fresh_ids as fresh_ids
    from nearkin.compose.ranks import BinnedPrecision as BinnedPrecision
    from nearkin.compose.ranks import SmoothPrecision as SmoothPrecision
    from nearkin.compose.ranks import SmoothRecall as SmoothRecall
    from nearkin.compose.references import Anchors as Anchors
    from nearkin.compose.references import Centers as Centers
    from nearkin.compose.references import ClassBank as ClassBank
    from nearkin.compose.references import CrossBatchMemory as CrossBatchMemory
    from nearkin.compose.references import InBatch as InBatch
    from nearkin.compose.references import MemoryBank as MemoryBank
    from nearkin.compose.references import MomentumQueue as MomentumQueue
    from nearkin.compose.references import OnePerClass as OnePerClass
    from nearkin.compose.references import Proxies as Proxies
    from nearkin.compose.references import References as References
    from nearkin.compose.references.anchors import assign as assign
    from nearkin.compose.references.anchors import circle as circle
    from nearkin.compose.references.anchors import orthonormal as orthonormal
    from nearkin.compose.references.anchors import packed as packed
    from nearkin.compose.references.anchors import simplex as simplex
    from nearkin.compose.references.anchors import smallest_angle as smallest_angle
    from nearkin.compose.relation import LabelDistance as LabelDistance
    from nearkin.compose.relation import LabelOverlap as LabelOverlap
    from nearkin.compose.relation import Layout as Layout
    from nearkin.compose.relation import ListedNeighbors as ListedNeighbors
    from nearkin.compose.relation import Related as Related
    from nearkin.compose.relation import Relation as Relation
    from nearkin.compose.relation import SameId as SameId
    from nearkin.compose.relation import SameLabel as SameLabel
    from nearkin.compose.relation import SameLabelApart as SameLabelApart
    from nearkin.compose.relation import squared_distance as squared_distance
    from nearkin.compose.routes import Composition as Composition
    from nearkin.compose.routes import plan as plan
    from nearkin.compose.several_vectors import NearestVector as NearestVector
    from nearkin.compose.several_vectors import SignalToNoise as SignalToNoise
    from nearkin.compose.several_vectors import SoftNearestVector as SoftNearestVector
    from nearkin.compose.triplets import Triplets as Triplets


def __getattr__(name: str) -> Any:
    return _lazy_exports(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
