"""Which objective: by name, or by the labels of the data."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from nearkin import objectives as o
from nearkin.compose.affinity import unit
from nearkin.compose.references.anchors import assign, circle, orthonormal, packed, simplex
from nearkin.compose.relation import LabelOverlap
from nearkin.compose.validation import check_choice
from nearkin.data.dataset import Dataset
from nearkin.objectives import Objective, WeightedSum
from nearkin.objectives.direct_regression import DirectRegression
from nearkin.train.config import check_options

Built = Objective | WeightedSum


def nearest_class_mean(
    num_classes: int,
    dimension: int,
    anchors: str = "orthonormal",
    metric: str = "euclidean",
    scale: float = 1.0,
    length: float = 1.0,
    seed: int = 0,
) -> Objective:
    """NearestClassMean with anchors made by name, dealt to the classes at random, `length` long."""
    makers: dict[str, Callable[[int, int], Tensor]] = {
        "orthonormal": orthonormal,
        "simplex": simplex,
        "packed": packed,
        "circle": lambda count, _: circle(count),
        "random": lambda count, size: unit(torch.randn(count, size, generator=torch.Generator().manual_seed(seed))),
    }
    check_choice("anchors", anchors, makers)
    return o.NearestClassMean(length * assign(makers[anchors](num_classes, dimension), seed), metric, scale)  # type: ignore[arg-type]


def nca_of_sets(temperature: float = 1.0, metric: str = "squared_euclidean") -> Objective:
    """NCA whose relation is the overlap of label sets."""
    return o.NCA(temperature=temperature, metric=metric, relation=LabelOverlap())  # type: ignore[arg-type]


OBJECTIVES: Mapping[str, Callable[..., Built]] = {
    "nca": o.NCA,
    "nca_regression": o.NCARegression,
    "nca_of_sets": nca_of_sets,
    "direct_regression": DirectRegression,
    "nearest_class_mean": nearest_class_mean,
    "instance_discrimination": o.InstanceDiscrimination,
    "neighborhood_discovery": o.NeighborhoodDiscovery,
    "deep_cluster": o.DeepCluster,
    "noise_as_targets": o.NoiseAsTargets,
    "precision_at_k": o.PrecisionAtK,
    "softmax": o.Softmax,
    "hinge": o.Hinge,
    "large_margin_softmax": o.LargeMarginSoftmax,
    "center_loss": o.CenterLoss,
    "center_pull": o.CenterPull,
    "contrastive": o.Contrastive,
    "triplet": o.Triplet,
    "npair": o.NPair,
    "lifted_structure": o.LiftedStructure,
    "angular": o.Angular,
    "proxy_nca": o.ProxyNCA,
    "normalized_softmax": o.NormalizedSoftmax,
}

WITHOUT_LABELS = (
    "instance_discrimination",
    "neighborhood_discovery",
    "deep_cluster",
    "noise_as_targets",
)  # objectives that read ids alone

BETWEEN_EPOCHS = ("neighborhood_discovery", "deep_cluster", "noise_as_targets")  # of those, which look at all points then

BY_SUPERVISION = {
    "classes": ("nca", "the data have classes, so neighbors should share them"),
    "numbers": ("nca_regression", "the data have numbers, so neighbors should have similar ones"),
    "sets": ("nca_of_sets", "the data have label sets, so neighbors should share labels"),
    "some classes": (
        "neighborhood_discovery",
        "the data have classes for some points: those use them, the others the neighbors that are discovered",
    ),
    "ids": (
        "neighborhood_discovery",
        "the data have no labels, so every point is separated from all others until its neighbors can be trusted",
    ),
}


def choose(name: str, supervision: str) -> tuple[str, str]:
    """The objective's name, and in words why."""
    if not isinstance(name, str):
        raise ValueError(f"objective ({name!r}) must be the name of one ({', '.join(OBJECTIVES)}), or an objective that is built: NCA()")
    if name != "auto":
        name = {known.replace("_", ""): known for known in OBJECTIVES}.get(name.lower().replace("_", ""), name)  # NCA, ProxyNCA
        return check_choice("objective", name, OBJECTIVES), "you chose it"
    return BY_SUPERVISION[supervision]


def objective_for(data: Dataset, name: str) -> tuple[str, str]:
    """The name of the objective that these data are trained by, and in words why."""
    return choose(name, "some classes" if data.partly_labeled else data.supervision)


def without_labels(objective: Built) -> bool:
    """Whether an objective reads ids alone: classes, where there are any, are for reporting."""
    return objective.supervision == "ids"


def build(name: str, options: Mapping[str, Any], *, num_classes: int, dimension: int, size: int, labels: Tensor | None = None) -> Built:
    """The objective with its options; what its signature needs of the data (classes, dimension, size, labels) is filled in."""
    maker = OBJECTIVES[name]
    facts = {"num_classes": num_classes, "dimension": dimension, "size": size, "labels": labels}
    check_options(f"objective {name}", options, maker, filled=facts)
    known = inspect.signature(maker).parameters
    return maker(**{**{key: value for key, value in facts.items() if key in known}, **options})
