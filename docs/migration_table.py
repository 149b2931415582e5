# ruff: noqa: E501
"""Every loss, miner, distance, reducer, sampler and metric of the peers, its counterpart here, and whether the values are equal.

An entry with a `check` is compared by tests/peers/test_migration.py: value and gradient on random batches, to 1e-5. An entry without one says
why. pytorch-metric-learning is imported for it; sentence-transformers and lightly, which need not be installed, stand as their formulas.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import nearkin as nk
from nearkin import compose as c
from nearkin import objectives as o
from tests.peers import run

VERSIONS = {"pytorch-metric-learning": "2.9.0", "sentence-transformers": "6.2.0", "lightly": "1.6.0"}
DIMENSION, CLASSES, DTYPE = 8, 6, torch.float64


class Batch(NamedTuple):
    """A random batch; `even` has classes of one size, `labels` has not."""

    z: Tensor
    labels: Tensor
    even: Tensor


def batch(seed: int) -> Batch:
    """24 points in float64."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(24, DIMENSION, dtype=DTYPE, generator=generator)
    uneven = torch.cat([torch.arange(CLASSES).repeat(2), torch.randint(0, CLASSES, (12,), generator=generator)])
    return Batch(z, uneven[torch.randperm(24, generator=generator)], torch.arange(CLASSES).repeat(4))


Loss = Callable[[Tensor], Tensor]
Check = Callable[[Batch], tuple[Loss, Loss]]  # theirs and ours, as functions of the embeddings


@dataclass(frozen=True)
class Entry:
    """One row: their name, ours, and why values differ or under which condition they are equal."""

    theirs: str
    ours: str
    why: str = ""
    check: Check | None = None

    @property
    def equal(self) -> str:
        """What the table says."""
        return "yes" if self.check is not None else "no" if self.ours else "none"


def pml() -> Any:
    """pytorch-metric-learning with the modules that the checks use."""
    import pytorch_metric_learning.distances
    import pytorch_metric_learning.losses
    import pytorch_metric_learning.miners
    import pytorch_metric_learning.reducers
    import pytorch_metric_learning.samplers

    return pytorch_metric_learning


def plain(name: str, ours: Callable[[], Any], even: bool = False, unit: bool = False, **options: Any) -> Check:
    """A loss without vectors of its own; `unit`: ours gets unit vectors, because theirs normalizes silently."""

    def check(b: Batch) -> tuple[Loss, Loss]:
        loss, objective, y = getattr(pml().losses, name)(**options), ours().to(b.z.device), b.even if even else b.labels
        return lambda z: loss(z, y), lambda z: objective(F.normalize(z) if unit else z, y)

    return check


def head(name: str, weight: str, ours: Callable[[], Any], several: int = 1, **options: Any) -> Check:
    """A loss with class vectors, which are copied; theirs stand in columns or rows."""

    def check(b: Batch) -> tuple[Loss, Loss]:
        loss = getattr(pml().losses, name)(num_classes=CLASSES, embedding_size=DIMENSION, **options).to(b.z.device, DTYPE)
        objective = ours().to(b.z.device, DTYPE)
        vectors = getattr(loss, weight).data
        vectors = vectors if weight == "proxies" else vectors.T
        objective.references.vectors.data = vectors.reshape(CLASSES, several * DIMENSION).clone()
        return lambda z: loss(z, b.labels), lambda z: objective(z, b.labels)

    return check


def mined(miner: str, ours: Callable[[], Any], loss: Callable[[Any], Any], even: bool = False, **options: Any) -> Check:
    """A loss after a miner."""

    def check(b: Batch) -> tuple[Loss, Loss]:
        theirs, objective, y = loss(pml()), ours().to(b.z.device), b.even if even else b.labels
        mine = getattr(pml().miners, miner)(distance=pml().distances.CosineSimilarity(), **options)
        return lambda z: theirs(z, y, mine(z, y)), lambda z: objective(z, y)

    return check


def matrix(make: Callable[[Any], Any], ours: Callable[[Tensor, Tensor], Tensor], sign: float = 1.0) -> Check:
    """A distance or similarity, summed with fixed weights; `sign` -1 where theirs is a distance."""

    def check(b: Batch) -> tuple[Loss, Loss]:
        weight = torch.randn(12, 12, dtype=b.z.dtype, generator=torch.Generator().manual_seed(0))
        distance = make(pml().distances)
        return lambda z: (weight * sign * distance(z[:12], z[12:])).sum(), lambda z: (weight * ours(z[:12], z[12:])).sum()

    return check


def composed(affinity: Any, criterion: Any) -> Any:
    """A composition over the batch by class."""
    return nk.NeighborhoodObjective(c.InBatch(), affinity, c.SameLabel(), criterion)


def n_pairs(_: Batch) -> tuple[Loss, Loss]:
    """N-pair takes two samples of each class."""
    y = torch.arange(12).repeat(2)
    return lambda z: pml().losses.NPairsLoss()(z, y), lambda z: nk.NPair(l2=0)(F.normalize(z), y)


def self_supervised(_: Batch) -> tuple[Loss, Loss]:
    """Two views, the second 12 rows behind the first."""
    loss, ids = pml().losses.SelfSupervisedLoss(pml().losses.NTXentLoss(0.2)), torch.arange(12).repeat(2)
    return lambda z: loss(z[:12], z[12:]), lambda z: o.NTXent(0.2, positives="views")(z, ids=ids)


def vicreg(_: Batch) -> tuple[Loss, Loss]:
    """Two views as embeddings and reference embeddings."""
    loss, ids = pml().losses.VICRegLoss(), torch.arange(12).repeat(2)
    return lambda z: loss(z[:12], ref_emb=z[12:]), lambda z: o.VICReg()(z, ids=ids)


def several_losses(b: Batch) -> tuple[Loss, Loss]:
    """A sum of two."""
    losses = pml().losses
    theirs = losses.MultipleLosses([losses.SupConLoss(), losses.MultiSimilarityLoss()], weights=[0.5, 2.0])
    ours = nk.WeightedSum({"a": (0.5, o.SupCon()), "b": (2.0, o.MultiSimilarity(epsilon=None))})
    return lambda z: theirs(z, b.labels), lambda z: ours(z, b.labels)


def memory(b: Batch) -> tuple[Loss, Loss]:
    """A batch of 12 after another of 12."""
    y = b.labels
    losses = pml().losses
    queue = losses.CrossBatchMemory(losses.MultiSimilarityLoss(), DIMENSION, memory_size=24)
    objective = o.MultiSimilarity(epsilon=None).choosing_among(c.CrossBatchMemory(12, DIMENSION)).double()
    queue(b.z[:12], y[:12])
    objective.update(b.z[:12], y[:12], ids=torch.arange(12))

    def ours(z: Tensor) -> Tensor:
        return objective(torch.cat([z[12:]]), y[12:], ids=torch.arange(12, 24))

    def theirs(z: Tensor) -> Tensor:
        # Theirs stores the batch before it compares, without its gradient; the value is the same and the gradient is not.
        value = copy.deepcopy(queue)(z[12:].detach(), y[12:])
        return ours(z) + (value - ours(z)).detach()

    return theirs, ours


def reduced(reducer: str, reduction: str) -> Check:
    """A reducer on a loss whose elements are queries."""

    def check(b: Batch) -> tuple[Loss, Loss]:
        loss = pml().losses.MultiSimilarityLoss(reducer=getattr(pml().reducers, reducer)())
        return lambda z: loss(z, b.labels), lambda z: o.MultiSimilarity(epsilon=None)(z, b.labels, reduction=reduction)

    return check


def not_reduced(b: Batch) -> tuple[Loss, Loss]:
    """The values themselves."""
    loss = pml().losses.MultiSimilarityLoss(reducer=pml().reducers.DoNothingReducer())
    weight = torch.arange(24, dtype=b.z.dtype)
    return (
        lambda z: (weight * loss(z, b.labels)["loss"]["losses"][:, 0]).sum(),
        lambda z: (weight * o.MultiSimilarity(epsilon=None)(z, b.labels, reduction="none")).sum(),
    )


def hard_triplets(p: Any) -> Any:
    """Triplets on cosine, with a plain mean."""
    return p.losses.TripletMarginLoss(0.2, distance=p.distances.CosineSimilarity(), reducer=p.reducers.MeanReducer())


def triplet_margin(b: Batch) -> tuple[Loss, Loss]:
    """All triplets on cosine, classes of one size."""
    loss, objective = hard_triplets(pml()), nk.Triplet("uniform", 0.2)
    return lambda z: loss(z, b.even), lambda z: objective(z, b.even)


def threshold_margin(b: Batch) -> tuple[Loss, Loss]:
    """The margin loss with a fixed threshold."""
    return plain("MarginLoss", lambda: o.MarginLoss(learn_beta=False))(b)


def angular(b: Batch) -> tuple[Loss, Loss]:
    """Theirs gets unit vectors."""
    loss = pml().losses.AngularLoss(alpha=45)
    few = b.labels[:12]  # theirs takes the fourth power of the batch
    return lambda z: loss(F.normalize(z[:12]), few), lambda z: nk.Angular(45.0)(z[:12], few)


SKIPPED = "not here: "
LOSSES = [
    Entry("AngularLoss", "Angular(45)", "on unit vectors; theirs does not normalize the negatives", angular),
    Entry("ArcFaceLoss", "ArcFace", "margins in radians here, in degrees there", head("ArcFaceLoss", "W", lambda: o.ArcFace(CLASSES, DIMENSION, 0.5), margin=math.degrees(0.5))),
    Entry("CircleLoss", "Circle", "", plain("CircleLoss", o.Circle)),
    Entry("ContrastiveLoss", "NeighborhoodObjective(InBatch(), Normalized(Euclidean()), SameLabel(), BalancedPairs())", "`Contrastive` squares, as the paper does", plain("ContrastiveLoss", lambda: composed(c.Normalized(c.Euclidean()), c.BalancedPairs()))),
    Entry("CosFaceLoss", "CosFace", "", head("CosFaceLoss", "W", lambda: o.CosFace(CLASSES, DIMENSION))),
    Entry("CrossBatchMemory", "objective.choosing_among(CrossBatchMemory(...))", "value; theirs gives the batch no gradient as references, and stores the batch before it compares; ours excludes a sample by its id", memory),
    Entry("DynamicSoftMarginLoss", "", SKIPPED + "its histogram changes in the forward pass; use `Triplet` or `Histogram`"),
    Entry("FastAPLoss", "FastAP", "", plain("FastAPLoss", o.FastAP)),
    Entry("GeneralizedLiftedStructureLoss", "LiftedStructure", "another formula: each query's own pairs, no square"),
    Entry("HistogramLoss", "Histogram", "every class needs two samples: theirs leaves out pairs of singletons", plain("HistogramLoss", o.Histogram)),
    Entry("InstanceLoss", "", SKIPPED + "it takes the class number as the column of the batch, which is another sample's; use `InfoNCE` or `NTXent`"),
    Entry("IntraPairVarianceLoss", "", SKIPPED + "an addition to the tuplet margin loss; write it as a criterion"),
    Entry("LargeMarginSoftmaxLoss", "LargeMarginSoftmax(base=0)", "by default ours anneals the margin as its authors do", head("LargeMarginSoftmaxLoss", "W", lambda: nk.LargeMarginSoftmax(CLASSES, DIMENSION, base=0.0))),
    Entry("LiftedStructureLoss", "LiftedStructure", "on unit vectors", plain("LiftedStructureLoss", nk.LiftedStructure, unit=True)),
    Entry("ManifoldLoss", "", SKIPPED + "it inverts an (n + K)^2 matrix each step; nobody asked for it"),
    Entry("MarginLoss", "MarginLoss", "with one beta for all classes", threshold_margin),
    Entry("MultiSimilarityLoss", "MultiSimilarity(epsilon=None)", "ours mines by default, as the paper does", plain("MultiSimilarityLoss", lambda: o.MultiSimilarity(epsilon=None))),
    Entry("MultipleLosses", "WeightedSum", "", several_losses),
    Entry("NCALoss", 'NCA(temperature=0.5, metric="cosine")', "theirs normalizes silently: NCA() on unit vectors has the same value; theirs drops rows whose probability underflows", plain("NCALoss", lambda: nk.NCA(temperature=0.5, metric="cosine"))),
    Entry("NPairsLoss", "NPair(l2=0)", "on unit vectors with two samples of each class", n_pairs),
    Entry("NTXentLoss", "NTXent", "", plain("NTXentLoss", o.NTXent)),
    Entry("NormalizedSoftmaxLoss", "NormalizedSoftmax", "ours holds (C, d), theirs (d, C)", head("NormalizedSoftmaxLoss", "W", lambda: nk.NormalizedSoftmax(CLASSES, DIMENSION))),
    Entry("P2SGradLoss", "", SKIPPED + "it writes its weights in the forward pass; use `CosFace` or `AdaCos`"),
    Entry("PNPLoss", "SmoothAP", "another smooth rank; theirs counts the query as its own positive"),
    Entry("ProxyAnchorLoss", "ProxyAnchor", "", head("ProxyAnchorLoss", "proxies", lambda: o.ProxyAnchor(CLASSES, DIMENSION))),
    Entry("ProxyNCALoss", 'ProxyNCA(form="softmax")', "ours leaves the own proxy out of the denominator by default, as published", head("ProxyNCALoss", "proxies", lambda: nk.ProxyNCA(CLASSES, DIMENSION, form="softmax"), softmax_scale=3)),
    Entry("RankedListLoss", "RankedList", "theirs adds 1e-5 to every weight, also of pairs that do not violate; up to n 1e-5 apart"),
    Entry("SelfSupervisedLoss", 'NTXent(positives="views"), or ids as labels', "", self_supervised),
    Entry("SignalToNoiseRatioContrastiveLoss", "SignalToNoiseContrastive", "on unit vectors; theirs normalizes silently", plain("SignalToNoiseRatioContrastiveLoss", o.SignalToNoiseContrastive, unit=True)),
    Entry("SmoothAPLoss", "SmoothAP", "theirs is wrong unless labels are sorted and there are as many classes as samples of each; and it ranks the query itself"),
    Entry("SoftTripleLoss", "SoftTriple(merge=0)", "ours merges unneeded proxies by default, as the paper does", head("SoftTripleLoss", "fc", lambda: o.SoftTriple(CLASSES, DIMENSION, 10, merge=0.0), several=10)),
    Entry("SphereFaceLoss", "SphereFace(base=0, lambda_min=0)", "by default ours anneals the margin as its authors do", head("SphereFaceLoss", "W", lambda: o.SphereFace(CLASSES, DIMENSION, base=0.0, lambda_min=0.0))),
    Entry("SubCenterArcFaceLoss", "SubCenterArcFace", "ours holds the proxies of a class in one row; as ArcFaceLoss", head("SubCenterArcFaceLoss", "W", lambda: o.SubCenterArcFace(CLASSES, DIMENSION, 3, 0.5), several=3, margin=math.degrees(0.5))),
    Entry("SupConLoss", "SupCon", "", plain("SupConLoss", o.SupCon)),
    Entry("ThresholdConsistentMarginLoss", "", SKIPPED + "an addition to other losses; write it as a criterion"),
    Entry("TripletMarginLoss", 'Triplet("uniform")', "with `MeanReducer` and classes of one size: ours is a mean over queries, theirs by default over active triplets", triplet_margin),
    Entry("TupletMarginLoss", "TupletMargin", "slack in radians here, in degrees there", plain("TupletMarginLoss", lambda: o.TupletMargin(0.1), margin=math.degrees(0.1))),
    Entry("VICRegLoss", "VICReg", "", vicreg),
]  # fmt: skip
MINERS = [
    Entry("AngularMiner", "Angular", "no mining by angle; the loss weighs all"),
    Entry("BatchEasyHardMiner", 'Triplet("hard"), Triplet("semi-hard")', "the easy choices are not here"),
    Entry("BatchHardMiner", 'Triplet("hard")', "with `MeanReducer`", mined("BatchHardMiner", lambda: nk.Triplet("hard", 0.2), hard_triplets)),
    Entry("DistanceWeightedMiner", 'Triplet("distance-weighted", dimension=d)', "both draw at random"),
    Entry("EmbeddingsAlreadyPackagedAsTriplets", "", "give every triplet labels of its own"),
    Entry("HDCMiner", "", SKIPPED + "a share of the hardest pairs of the whole batch; use `MultiSimilarity` or `PrecisionAtK`"),
    Entry("MultiSimilarityMiner", "MultiSimilarity(epsilon=0.1)", "with its loss", mined("MultiSimilarityMiner", o.MultiSimilarity, lambda p: p.losses.MultiSimilarityLoss(), epsilon=0.1)),
    Entry("PairMarginMiner", "BalancedPairs(margin, positive_margin)", "margins are part of the criterion"),
    Entry("TripletMarginMiner", 'Triplet("semi-hard")', "ours takes the nearest semi-hard negative of each positive"),
    Entry("UniformHistogramMiner", "", SKIPPED + "it draws at random; use `Histogram` or `Triplet(\"distance-weighted\")`"),
]  # fmt: skip
DISTANCES = [
    Entry("BatchedDistance", "", "not needed: soft criteria stream, and search runs in blocks"),
    Entry("CosineSimilarity", "cosine()", "", matrix(lambda d: d.CosineSimilarity(), c.cosine())),
    Entry("DotProductSimilarity", "InnerProduct()", "theirs normalizes unless told not to", matrix(lambda d: d.DotProductSimilarity(normalize_embeddings=False), c.InnerProduct())),
    Entry("LpDistance", "Normalized(Euclidean())", "negated: an affinity is larger when nearer", matrix(lambda d: d.LpDistance(), c.Normalized(c.Euclidean()), -1.0)),
    Entry("SNRDistance", "SignalToNoise()", "negated; theirs normalizes unless told not to", matrix(lambda d: d.SNRDistance(normalize_embeddings=False), c.SignalToNoise(), -1.0)),
]  # fmt: skip
REDUCERS = [
    Entry(
        "AvgNonZeroReducer", "", "the scale of its gradient changes with the number of active pairs; `objective.last.active` counts them"
    ),
    Entry("ClassWeightedReducer", 'reduction="none"', "multiply the values by your weights; one for each query, not for each pair"),
    Entry("DivisorReducer", 'reduction="sum"', "divide by what you like"),
    Entry("DoNothingReducer", 'reduction="none"', "", not_reduced),
    Entry("MeanReducer", 'reduction="mean"', "over valid queries", reduced("MeanReducer", "mean")),
    Entry("MultipleReducers", 'reduction="none"', "one value for each query"),
    Entry("PerAnchorReducer", 'reduction="mean"', "most criteria average over the pairs of a query first"),
    Entry(
        "SumReducer", 'reduction="sum"', "but for `Triplet`, whose queries have a mean over their triplets", reduced("SumReducer", "sum")
    ),
    Entry("ThresholdReducer", 'reduction="none"', "select from the values"),
]
SAMPLERS = [
    Entry("FixedSetOfTriplets", "", "give every triplet labels of its own"),
    Entry("HierarchicalSampler", "Grouped", "drawn at random; ours repeats no sample in a batch"),
    Entry("MPerClassSampler", "PerClass", "drawn at random; ours repeats no sample in a batch"),
    Entry("TuplesToWeightsSampler", "HardClasses, NearNeighbors", "hard classes or hard points, not weights of single points"),
]


def scored(metric: str, ours: Callable[[nk.Points], Any]) -> Check:
    """A metric of AccuracyCalculator on classes of one size."""

    def check(b: Batch) -> tuple[Loss, Loss]:
        from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
        from pytorch_metric_learning.utils.inference import CustomKNN

        search = CustomKNN(pml().distances.LpDistance(normalize_embeddings=False))
        calculator = AccuracyCalculator(
            include=(metric, "precision_at_1"), k="max_bin_count" if "r" in metric[-2:] else None, knn_func=search
        )

        def theirs(z: Tensor) -> Tensor:
            return torch.tensor(calculator.get_accuracy(z.detach().float(), b.even)[metric], dtype=torch.float64)

        def mine(z: Tensor) -> Tensor:
            return torch.tensor(float(ours(nk.Points(z.detach().float(), b.even, torch.arange(24)))), dtype=torch.float64)

        return theirs, mine

    return check


def measured(name: str) -> Callable[[nk.Points], float]:
    """A metric of `retrieval`."""
    return lambda points: nk.retrieval(points, ks=(1, 23))[name].value


METRICS = [
    Entry("AMI", "clustering", "k-means with several restarts here, with one there"),
    Entry("NMI", "clustering", "the same; read AMI, because NMI grows with the number of classes"),
    Entry("mean_average_precision", "retrieval: map@k", "with k = all others; theirs divides by R, ours by min(R, k)", scored("mean_average_precision", measured("map@23"))),
    Entry("mean_average_precision_at_r", "retrieval: map@r", "", scored("mean_average_precision_at_r", measured("map@r"))),
    Entry("mean_reciprocal_rank", "retrieval: mrr", "theirs raises when it is the only metric", scored("mean_reciprocal_rank", measured("mrr"))),
    Entry("precision_at_1", "retrieval: precision@1", "labels above 2^24 are confused there", scored("precision_at_1", measured("precision@1"))),
    Entry("r_precision", "retrieval: r_precision", "", scored("r_precision", measured("r_precision"))),
]  # fmt: skip


# sentence-transformers and lightly, by formula.


def ranking(symmetric: bool) -> Check:
    """Cross-entropy of scaled cosines with the diagonal."""

    def check(_: Batch) -> tuple[Loss, Loss]:
        ids = torch.arange(12)

        def theirs(z: Tensor) -> Tensor:
            scores = F.normalize(z[:12]) @ F.normalize(z[12:]).T * 20
            one = F.cross_entropy(scores, ids)
            return (one + F.cross_entropy(scores.T, ids)) / 2 if symmetric else one

        objective = o.InfoNCE(0.05, symmetric=symmetric)
        return theirs, lambda z: objective(z[:12], ids=ids, references=nk.Points(z[12:], None, ids))

    return check


def batch_hard(b: Batch) -> tuple[Loss, Loss]:
    """The hardest positive and negative of each query by Euclidean distance."""
    same = b.even[:, None] == b.even

    def theirs(z: Tensor) -> Tensor:
        d = torch.cdist(z, z)
        return F.relu((d * same).amax(1) - d.masked_fill(same, torch.inf).amin(1) + 5).mean()

    objective = composed(c.Euclidean(), c.Triplets("hard", 5.0))
    return theirs, lambda z: objective(z, b.even)


def matryoshka(b: Batch) -> tuple[Loss, Loss]:
    """The ranking loss on two prefixes."""
    ids, (inner, _) = torch.arange(12), ranking(False)(b)
    objective = o.Matryoshka(o.InfoNCE(0.05, symmetric=False), (4, 8))
    return lambda z: inner(z[:, :4]) + inner(z), lambda z: objective(z[:12], ids=ids, references=nk.Points(z[12:], None, ids))


def pairs_by_cosine(_: Batch) -> tuple[Loss, Loss]:
    """Row i of the first half and of the second are a pair, with a label of 0 or 1; cosine distance, margin 0.5."""
    same = torch.arange(12) % 2

    def theirs(z: Tensor) -> Tensor:
        d = 1 - F.cosine_similarity(z[:12], z[12:])
        return (same * d**2 + (1 - same) * F.relu(0.5 - d) ** 2).mean() / 2

    def ours(z: Tensor) -> Tensor:
        cosines = c.cosine()(z[:12], z[12:])
        related = c.Related((1 - same).to(z.dtype)[:, None].expand(12, 12), torch.eye(12, dtype=torch.bool))
        return c.reduce(c.Pairs(0.5)(cosines - 1, related), "mean") / 2

    return theirs, ours


def nt_xent_of_views(_: Batch) -> tuple[Loss, Loss]:
    """Two views, all 2n rows as queries."""
    ids = torch.arange(12).repeat(2)

    def theirs(z: Tensor) -> Tensor:
        s = (F.normalize(z) @ F.normalize(z).T / 0.5).masked_fill(torch.eye(24, dtype=torch.bool), -torch.inf)
        return F.cross_entropy(s, (torch.arange(24) + 12) % 24)

    return theirs, lambda z: o.NTXent(0.5, positives="views")(z, ids=ids)


def decoupled(_: Batch) -> tuple[Loss, Loss]:
    """The positive is not in the denominator."""
    views = torch.arange(12).repeat(2)

    def theirs(z: Tensor) -> Tensor:
        s = F.normalize(z) @ F.normalize(z).T / 0.1
        other = views[:, None] != views
        return (s.masked_fill(~other, -torch.inf).logsumexp(1) - s[torch.arange(24), (torch.arange(24) + 12) % 24]).mean()

    objective = nk.NeighborhoodObjective(c.InBatch(), c.cosine(0.1), c.SameLabelApart(), c.any_positive)
    return theirs, lambda z: objective(z, views)


def two_views(kind: str) -> Check:
    """Statistics of two views as lightly computes them."""

    def check(_: Batch) -> tuple[Loss, Loss]:
        ids = torch.arange(12).repeat(2)

        def barlow(z: Tensor) -> Tensor:
            a, d = (F.batch_norm(v, None, None, training=True) for v in (z[:12], z[12:]))
            r = a.T @ d / 12
            own = torch.eye(DIMENSION, dtype=torch.bool)
            return (r[own] - 1).square().sum() + 0.005 * r[~own].square().sum()

        def spread(z: Tensor) -> Tensor:
            value, own = 25 * F.mse_loss(z[:12], z[12:]), torch.eye(DIMENSION, dtype=torch.bool)
            for v in (z[:12], z[12:]):
                value = value + 12.5 * F.relu(1 - (v.var(0) + 1e-4).sqrt()).mean() + torch.cov(v.T)[~own].square().sum() / DIMENSION
            return value

        objective = o.BarlowTwins(0.005) if kind == "barlow" else o.VICReg()
        return barlow if kind == "barlow" else spread, lambda z: objective(z, ids=ids)

    return check


def negative_cosine(_: Batch) -> tuple[Loss, Loss]:
    """Minus the cosine of two views."""
    objective = nk.NeighborhoodObjective(c.InBatch(), c.cosine(), c.SameId(), c.attraction)
    ids = torch.arange(12)
    return (
        lambda z: -F.cosine_similarity(z[:12], z[12:]).mean(),
        lambda z: objective(z[:12], ids=ids, references=nk.Points(z[12:], None, ids)),
    )


TEXT = [
    Entry("AdaptiveLayerLoss", "", SKIPPED + "it trains layers of a transformer"),
    Entry("AnglELoss", "", SKIPPED + "scores of sentence pairs; use `NCARegression` for numbers of single samples"),
    Entry("BatchAllTripletLoss", 'Triplet("uniform")', "theirs averages over active triplets"),
    Entry("BatchHardSoftMarginTripletLoss", 'Triplet("hard")', "theirs has a soft hinge"),
    Entry("BatchHardTripletLoss", 'NeighborhoodObjective(InBatch(), Euclidean(), SameLabel(), Triplets("hard", 5.0))', "no class of one: theirs makes up a positive", batch_hard),
    Entry("BatchSemiHardTripletLoss", 'Triplet("semi-hard")', "theirs averages over positive pairs"),
    Entry("CachedGISTEmbedLoss", "", SKIPPED + "needs a guide model"),
    Entry("CachedMultipleNegativesRankingLoss", "InfoNCE(0.05, symmetric=False)", "the same value; ours streams over the matrix instead of caching gradients", ranking(False)),
    Entry("CachedMultipleNegativesSymmetricRankingLoss", "InfoNCE(0.05)", "the same", ranking(True)),
    Entry("CoSENTLoss", "", SKIPPED + "scores of sentence pairs"),
    Entry("ContrastiveLoss", "Pairs(0.5) on cosine() - 1", "half of it; pairs are labeled there, samples here", pairs_by_cosine),
    Entry("ContrastiveTensionLoss", "", SKIPPED + "two copies of a network"),
    Entry("CosineSimilarityLoss", "", SKIPPED + "scores of sentence pairs"),
    Entry("DenoisingAutoEncoderLoss", "", SKIPPED + "needs a decoder"),
    Entry("DistillKLDivLoss", "", SKIPPED + "distillation"),
    Entry("EmbedDistillLoss", "DirectRegression", "distillation of an embedding is regression to it"),
    Entry("GISTEmbedLoss", "", SKIPPED + "needs a guide model; `hard_negatives` leaves out false negatives"),
    Entry("GlobalOrthogonalRegularizationLoss", "NeighborhoodObjective(penalty=...)", "write it as a function of the embeddings"),
    Entry("MSELoss", "DirectRegression", "distillation"),
    Entry("MarginMSELoss", "", SKIPPED + "distillation"),
    Entry("Matryoshka2dLoss", "Matryoshka", "without the layers"),
    Entry("MatryoshkaLoss", "Matryoshka", "", matryoshka),
    Entry("MegaBatchMarginLoss", 'Triplet("hard")', "with two views as labels"),
    Entry("MultipleNegativesRankingLoss", "InfoNCE(0.05, symmetric=False)", "scale 20", ranking(False)),
    Entry("MultipleNegativesSymmetricRankingLoss", "InfoNCE(0.05)", "scale 20", ranking(True)),
    Entry("OnlineContrastiveLoss", "Contrastive", "theirs keeps hard pairs only"),
    Entry("SoftmaxLoss", "Softmax", "theirs classifies pairs"),
    Entry("TripletLoss", "Triplet", "triplets are given there, chosen here"),
]  # fmt: skip
VIEWS = [
    Entry("BarlowTwinsLoss", "BarlowTwins(0.005)", "", two_views("barlow")),
    Entry("DCLLoss", "NeighborhoodObjective(InBatch(), cosine(0.1), SameLabelApart(), any_positive)", "views as labels", decoupled),
    Entry("DINOLoss", "", SKIPPED + "it needs a teacher network and centers its outputs"),
    Entry("KoLeoLoss", "NeighborhoodObjective(penalty=...)", "write it as a function of the embeddings"),
    Entry("MemoryBankModule", "CrossBatchMemory, MomentumQueue", "ours is saved with the objective"),
    Entry("NTXentLoss", 'NTXent(0.5, positives="views")', "", nt_xent_of_views),
    Entry("NegativeCosineSimilarity", "NeighborhoodObjective(InBatch(), cosine(), SameId(), attraction)", "the second view as references=", negative_cosine),
    Entry("SwaVLoss", "DeepCluster", "another way to cluster"),
    Entry("TiCoLoss", "VICReg", "another covariance"),
    Entry("VICRegLoss", "VICReg", "", two_views("vicreg")),
    Entry("CAPILoss, DetConBLoss, DetConSLoss, DirectCLRLoss, EMPSSLLoss, FroSSLLoss, IBOTPatchLoss, LeJEPALoss, LeWMLoss, MACLLoss, MMCRLoss, MSNLoss, PMSNLoss, PatchKernelAlignmentLoss, VICRegLLoss, VISRegLoss, WMSELoss", "", "not here: for patches, teachers or predictors, which are parts of a network"),
]  # fmt: skip
TABLES: dict[str, tuple[str, list[Entry]]] = {
    "Losses": ("pytorch-metric-learning", LOSSES),
    "Miners": ("pytorch-metric-learning", MINERS),
    "Distances": ("pytorch-metric-learning", DISTANCES),
    "Reducers": ("pytorch-metric-learning", REDUCERS),
    "Samplers": ("pytorch-metric-learning", SAMPLERS),
    "Metrics of AccuracyCalculator": ("pytorch-metric-learning", METRICS),
    "Losses of sentence-transformers": ("sentence-transformers", TEXT),
    "Losses of lightly": ("lightly", VIEWS),
}


def page() -> str:
    """The text of docs/migration.md."""
    versions = ", ".join(f"{name} {version}" for name, version in VERSIONS.items())
    lines = [
        "# Counterparts in other libraries",
        "",
        "<!-- Generated by docs/generate.py from docs/migration_table.py. Do not edit; run `make docs`. -->",
        "",
        f"About {versions}. *Equal: yes* means that value and gradient agree to 1e-5 on random batches of 24 points with classes of different",
        "sizes, unless the remark says otherwise; `tests/peers/test_migration.py` checks every such row. The losses of sentence-transformers and",
        "lightly are compared with their formulas. *no* means that there is a counterpart with other values, *none* that there is none.",
        "Conventions and the cases in which pytorch-metric-learning is wrong are in",
        "[Coming from pytorch-metric-learning](from-pytorch-metric-learning.md).",
    ]
    for title, (_, entries) in TABLES.items():
        equal = sum(entry.check is not None for entry in entries)
        lines += [
            "",
            f"## {title}",
            "",
            f"{equal} of {len(entries)} rows are equal.",
            "",
            "| theirs | nearkin | equal | remarks |",
            "|---|---|---|---|",
        ]
        for entry in entries:
            ours = f"`{entry.ours}`" if entry.ours else ""
            lines.append(f"| {', '.join(f'`{name}`' for name in entry.theirs.split(', '))} | {ours} | {entry.equal} | {entry.why} |")
    return "\n".join([*lines, *own_tests()]) + "\n"


def own_tests() -> list[str]:
    """What `make peers` expects of pytorch-metric-learning's own tests."""
    expected = run.DIFFERENCES["pml"]
    return [
        "",
        "## The tests of pytorch-metric-learning",
        "",
        "`make peers` runs pytorch-metric-learning's own tests of losses, samplers and metrics with nearkin in the place of its classes, through",
        "`tests/peers/pml_shims.py`. Tests of reducers, miners and distances are about objects that nearkin does not have; what they compute is",
        f"compared in the tables above. These {len(expected)} tests are expected to fail, each with the error that is named in `tests/peers/run.py`:",
        "",
        "| test | why |",
        "|---|---|",
        *(f"| `{name.replace('::', ' ')}` | {why.removeprefix('decision: ')} |" for name, (_, why) in expected.items()),
        "",
        f"These {len(run.NOT_RUN)} files are not run:",
        "",
        "| file | why |",
        "|---|---|",
        *(f"| `{name}.py` | {why} |" for name, why in run.NOT_RUN.items()),
    ]
