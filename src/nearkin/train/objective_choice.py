"""Which objective: by name, or by the labels of the data."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nearkin import objectives as o
from nearkin.compose.affinity import Euclidean, unit
from nearkin.compose.references import ClassBank, CrossBatchMemory
from nearkin.compose.references.anchors import assign, circle, orthonormal, packed, simplex
from nearkin.compose.relation import LabelOverlap
from nearkin.compose.validation import check_choice
from nearkin.data.dataset import Dataset
from nearkin.objectives import Objective, WeightedSum
from nearkin.objectives.class_vectors import clear_scale
from nearkin.objectives.direct_regression import DirectRegression
from nearkin.train.config import check_options

Built = Objective | WeightedSum


def nearest_class_mean(
    num_classes: int,
    dimension: int,
    anchors: str = "orthonormal",
    metric: str = "euclidean",
    scale: float | None = None,
    length: float | None = None,
    seed: int = 0,
    unit_length: bool = False,
) -> Objective:
    """NearestClassMean with anchors made by name, dealt to the classes at random, `length` long.

    With neither a scale nor a length, a point at its anchor is 99 % sure of its class: by the length of the anchors, which trains better
    than the scale (docs/papers/hao2018.md), or by the scale where that cannot be, for cosines and embeddings of unit length.
    """
    makers: dict[str, Callable[[int, int], Tensor]] = {
        "orthonormal": orthonormal,
        "simplex": simplex,
        "packed": packed,
        "circle": lambda count, _: circle(count),
        "random": lambda count, size: unit(torch.randn(count, size, generator=torch.Generator().manual_seed(seed))),
    }
    check_choice("anchors", anchors, makers)
    placed = assign(makers[anchors](num_classes, dimension), seed)
    if length is None:
        free = metric == "euclidean" and scale is None and not unit_length
        length = clear_scale(Euclidean(), placed) if free else 1.0
    return o.NearestClassMean(length * placed, metric, scale)  # type: ignore[arg-type]


def nca_of_sets(temperature: float = 1.0, metric: str = "squared_euclidean") -> Objective:
    """NCA whose relation is the overlap of label sets."""
    return o.NCA(temperature=temperature, metric=metric, relation=LabelOverlap())  # type: ignore[arg-type]


def matryoshka(
    num_classes: int,
    dimension: int,
    size: int,
    labels: Tensor | None = None,
    of: str = "nca",
    dimensions: Sequence[int] = (),
    weights: Sequence[float] = (),
    options: Mapping[str, Any] | None = None,
    unit_length: bool = False,
) -> Built:
    """An objective, `of`, on prefixes of the embedding: by default the whole and halves of it, down to 8 columns, of equal weight."""
    of = choose(of, "classes")[0]
    if of == "matryoshka":
        raise ValueError("objective matryoshka: of='matryoshka' would hold itself; name another objective")
    halves = [dimension >> i for i in range(dimension.bit_length()) if dimension >> i >= 8] or [dimension]

    def prefix(columns: int) -> Built:
        return build(of, options or {}, num_classes=num_classes, dimension=columns, size=size, labels=labels, unit_length=unit_length)

    return o.Matryoshka(prefix, dimensions or halves, weights or None)


OBJECTIVES: Mapping[str, Callable[..., Built]] = {
    "nca": o.NCA,
    "nca_regression": o.NCARegression,
    "nca_of_sets": nca_of_sets,
    "direct_regression": DirectRegression,
    "nearest_class_mean": nearest_class_mean,
    "instance_discrimination": o.InstanceDiscrimination,
    "neighborhood_discovery": o.NeighborhoodDiscovery,
    "neighbor_targets": o.NeighborTargets,
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
    "supcon": o.SupCon,
    "nt_xent": o.NTXent,
    "arcface": o.ArcFace,
    "cosface": o.CosFace,
    "sub_center_arcface": o.SubCenterArcFace,
    "sphereface": o.SphereFace,
    "adacos": o.AdaCos,
    "soft_triple": o.SoftTriple,
    "proxy_anchor": o.ProxyAnchor,
    "multi_similarity": o.MultiSimilarity,
    "circle": o.Circle,
    "tuplet_margin": o.TupletMargin,
    "margin_loss": o.MarginLoss,
    "ranked_list": o.RankedList,
    "signal_to_noise_contrastive": o.SignalToNoiseContrastive,
    "histogram": o.Histogram,
    "fast_ap": o.FastAP,
    "smooth_ap": o.SmoothAP,
    "recall_at_k": o.RecallAtK,
    "vicreg": o.VICReg,
    "barlow_twins": o.BarlowTwins,
    "matryoshka": matryoshka,
}

WITHOUT_LABELS = (
    "instance_discrimination",
    "neighborhood_discovery",
    "neighbor_targets",
    "deep_cluster",
    "noise_as_targets",
    "vicreg",
    "barlow_twins",
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


MEMORY = ("memory", "memory_per_class", "memory_delay", "memory_age")  # options of every objective whose references are the batch


def build(
    name: str,
    options: Mapping[str, Any],
    *,
    num_classes: int,
    dimension: int,
    size: int,
    labels: Tensor | None = None,
    unit_length: bool = False,
    steps: int = 1,
) -> Built:
    """The objective with its options; what its signature needs of the run (classes, dimension, size, labels, steps) is filled in.

    `memory`, `memory_per_class`, `memory_delay` and `memory_age` give an objective over the batch a memory of earlier batches.
    """
    maker = OBJECTIVES[name]
    facts: dict[str, Any] = {"num_classes": num_classes, "dimension": dimension, "size": size, "labels": labels}
    facts |= {"unit_length": unit_length, "steps": steps}
    known = inspect.signature(maker).parameters
    remembered = {key: value for key, value in options.items() if key in MEMORY and key not in known}
    options = {key: value for key, value in options.items() if key not in remembered}
    check_options(f"objective {name}", options, maker, filled=facts)
    built = maker(**{**{key: value for key, value in facts.items() if key in known}, **options})
    return with_memory(built, remembered, num_classes, dimension) if remembered else built


def with_memory(objective: Built, options: Mapping[str, Any], num_classes: int, dimension: int) -> Built:
    """The objective, choosing among the batch and what is remembered of earlier ones."""
    if not isinstance(objective, o.NeighborhoodObjective | o.WeightedSum):
        raise ValueError(
            f"{type(objective).__name__} compares points within the batch only and takes no {', '.join(options)}; leave it out"
        )
    delay, age = options.get("memory_delay", 0), options.get("memory_age", 0)
    if "memory_per_class" in options:
        return objective.choosing_among(ClassBank(num_classes, dimension, options["memory_per_class"], delay, age))
    if "memory" not in options:
        raise ValueError("memory_delay and memory_age belong to a memory: set memory= or memory_per_class=, too")
    return objective.choosing_among(CrossBatchMemory(options["memory"], dimension, delay, age))
