"""The classes that stand in for pytorch-metric-learning's in its own tests have its values, or raise where they have no counterpart."""

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

pml = pytest.importorskip("pytorch_metric_learning")
from pytorch_metric_learning import distances, losses, reducers, samplers  # noqa: E402

from tests.peers import pml_shims, run  # noqa: E402

COSINE, SQUARED = {"distance": distances.CosineSimilarity()}, {"distance": distances.LpDistance(power=2)}
ALL, BY_QUERY = {"reducer": reducers.MeanReducer()}, {"reducer": reducers.PerAnchorReducer(reducers.AvgNonZeroReducer())}
PAIRS = [
    ("AngularLoss", {"alpha": 40}),
    ("CircleLoss", {"m": 0.25, "gamma": 256}),
    ("ContrastiveLoss", {"pos_margin": 0.25, "neg_margin": 1.5, **SQUARED}),
    ("ContrastiveLoss", {"pos_margin": 1.5, "neg_margin": 0.6, **COSINE, **ALL}),
    ("FastAPLoss", {"num_bins": 5}),
    ("LiftedStructureLoss", {"neg_margin": 0.5}),
    ("MarginLoss", {"margin": 0.1, "nu": 0.1, "beta": 1, "learn_beta": True}),
    ("MultiSimilarityLoss", {"alpha": 0.1, "beta": 40, "base": 0.5}),
    ("NCALoss", {"softmax_scale": 10}),
    ("NTXentLoss", {"temperature": 0.1, "distance": distances.LpDistance()}),
    ("NTXentLoss", {"temperature": 0.1, **BY_QUERY}),
    ("SignalToNoiseRatioContrastiveLoss", {"neg_margin": 0.1}),
    ("SupConLoss", {"temperature": 0.1, "distance": distances.LpDistance()}),
    ("TripletMarginLoss", {"margin": 0.2}),
    ("TripletMarginLoss", {"margin": 0.2, **COSINE, **ALL}),
    ("TripletMarginLoss", {"margin": 0.2, "smooth_loss": True}),
    ("TupletMarginLoss", {"margin": 5, "scale": 64}),
]
HEADS = [
    ("ArcFaceLoss", "W", {"margin": 30}),
    ("CosFaceLoss", "W", {"margin": 0.5}),
    ("NormalizedSoftmaxLoss", "W", {"distance": distances.DotProductSimilarity(normalize_embeddings=False)}),
    ("ProxyAnchorLoss", "proxies", {"margin": 0.5}),
    ("SoftTripleLoss", "fc", {"centers_per_class": 3}),
    ("SubCenterArcFaceLoss", "W", {"margin": 30}),
]


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """16 unit vectors, of classes of different sizes."""
    torch.manual_seed(0)
    return F.normalize(torch.randn(16, 6, dtype=torch.float64)), torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 0, 1, 2, 3])


@pytest.mark.filterwarnings("ignore")  # of theirs
@pytest.mark.parametrize(("name", "options"), PAIRS, ids=[f"{name}-{number}" for number, (name, _) in enumerate(PAIRS)])
def test_pairs_and_triplets(name: str, options: dict[str, Any]) -> None:
    z, y = batch()
    torch.testing.assert_close(getattr(pml_shims, name)(**options)(z, y), getattr(losses, name)(**options)(z, y), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "attribute", "options"), HEADS, ids=[name for name, _, _ in HEADS])
def test_class_vectors(name: str, attribute: str, options: dict[str, Any]) -> None:
    z, y = batch()
    theirs, ours = (getattr(home, name)(num_classes=5, embedding_size=6, **options) for home in (losses, pml_shims))
    theirs.double()
    ours.objective.double()
    setattr(ours, attribute, getattr(theirs, attribute).detach())
    torch.testing.assert_close(ours(z, y), theirs(z, y), rtol=1e-5, atol=1e-6)
    if name != "SoftTripleLoss":
        torch.testing.assert_close(ours.get_logits(z), theirs.get_logits(z), rtol=1e-5, atol=1e-6)


def test_references_are_none_of_the_queries() -> None:
    z, y = batch()
    for name in ("MultiSimilarityLoss", "NTXentLoss", "TripletMarginLoss", "SupConLoss"):
        theirs, ours = (getattr(home, name)()(z[:8], y[:8], ref_emb=z[8:], ref_labels=y[8:]) for home in (losses, pml_shims))
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_what_is_not_here_says_so() -> None:
    z, y = batch()
    with pytest.raises(NotImplementedError, match="within the batch"):
        pml_shims.AngularLoss()(z, y, ref_emb=z, ref_labels=y)
    with pytest.raises(NotImplementedError, match="miner"):
        pml_shims.SupConLoss()(z, y, (1, 2, 3))


def test_samplers() -> None:
    labels = torch.arange(6).repeat(20)
    ids = list(pml_shims.MPerClassSampler(labels, m=4, batch_size=12, length_before_new_iter=24))
    assert len(ids) == 24 and labels[ids[:12]].bincount(minlength=6).sort(descending=True).values.tolist() == [4, 4, 4, 0, 0, 0]
    sampler = pml_shims.HierarchicalSampler(torch.stack([labels, labels // 2], 1), 8, samples_per_class=2, batches_per_super_pair=1)
    assert len(sampler) == math.comb(3, 2) == len(list(sampler))


def test_every_stand_in_replaces_a_class_of_theirs() -> None:
    assert {kind.__name__ for kind in pml_shims.LOSSES} <= set(vars(losses)) and hasattr(samplers, "MPerClassSampler")
    missing = {name.removeprefix("losses/test_") for name, why in run.NOT_RUN.items() if why == run.SKIPPED_LOSS}
    assert not missing & {kind.__name__.removesuffix("Loss").lower() + "_loss" for kind in pml_shims.LOSSES}
