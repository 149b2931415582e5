"""Hubness, silhouette, FNMR at FMR and corrected affinities, each beside a literal loop in float64."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score

from nearkin import Points, nearest, retrieval
from nearkin.compose.affinity import InnerProduct, SquaredEuclidean, cosine
from nearkin.evaluate import hubness, silhouette, verification
from nearkin.search import rescaled

AFFINITIES = {"squared": SquaredEuclidean(), "cosine": cosine(), "inner": InnerProduct()}


def points(n=40, d=5, classes=4, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    centers = 2 * torch.randn(classes, d, generator=generator, dtype=dtype)
    return Points(centers[labels] + torch.randn(n, d, generator=generator, dtype=dtype), labels, torch.arange(n))


def literal(name, q, r):
    if name == "squared":
        return -float(((q - r) ** 2).sum())
    if name == "cosine":
        return float(q @ r / (np.linalg.norm(q) * np.linalg.norm(r)))
    return float(q @ r)


@pytest.mark.parametrize("name", AFFINITIES)
def test_hubness_is_that_of_a_literal_loop(name):
    some, k = points(), 3
    x = some.embeddings.numpy()
    counts = np.zeros(len(x))
    for i in range(len(x)):
        near = sorted((j for j in range(len(x)) if j != i), key=lambda j: -literal(name, x[i], x[j]))[:k]
        counts[near] += 1
    found = hubness(some, affinity=AFFINITIES[name], k=k)
    skew = np.mean((counts - counts.mean()) ** 3) / counts.std() ** 3
    assert found["hub_skewness"].value == pytest.approx(skew, rel=1e-12)
    assert found["hubs"].value == np.mean(counts > 2 * k) and found["anti_hubs"].value == np.mean(counts == 0)
    assert all(score.low <= score.value <= score.high and not score.larger_is_better for score in found.values())


def test_chance_of_hubness_is_that_of_neighbors_at_random():
    rng = np.random.default_rng(0)
    n, k = 60, 5
    drawn = []
    for _ in range(400):
        counts = np.zeros(n)
        for i in range(n):
            counts[rng.choice(np.delete(np.arange(n), i), k, replace=False)] += 1
        drawn.append((np.mean((counts - counts.mean()) ** 3) / counts.std() ** 3, np.mean(counts > 2 * k), np.mean(counts == 0)))
    scores = hubness(points(n), k=k)
    for score, expected in zip(scores.values(), np.mean(drawn, 0), strict=True):
        assert score.chance == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(("name", "metric"), [("squared", "euclidean"), ("cosine", "cosine")])
def test_silhouette_is_that_of_scikit_learn(name, metric):
    some = points(41)
    score = silhouette(some, AFFINITIES[name])["silhouette"]
    assert score.value == pytest.approx(silhouette_score(some.embeddings.numpy(), some.labels.numpy(), metric=metric), rel=1e-10)
    assert score.low < score.value < score.high and -0.2 < score.chance < 0.05
    with pytest.raises(ValueError, match="points are all of one class"):
        silhouette(some._replace(labels=torch.zeros(41, dtype=torch.int64)))


def test_a_class_of_one_point_counts_as_zero():
    some = points(9, classes=4)._replace(labels=torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 2]))
    found = silhouette(some, draws=0)["silhouette"]
    assert found.per_query[8] == 0 and found.notes
    assert found.value == pytest.approx(silhouette_score(some.embeddings.numpy(), some.labels.numpy()), rel=1e-10)


@pytest.mark.parametrize("name", ["squared", "cosine"])
@pytest.mark.parametrize("with_gallery", [False, True])
def test_fnmr_at_fmr_is_that_of_a_literal_loop(name, with_gallery):
    queries, gallery = points(30), points(25, seed=1)._replace(ids=torch.arange(100, 125)) if with_gallery else None
    others = queries if gallery is None else gallery
    pairs = [
        (literal(name, queries.embeddings[i].numpy(), others.embeddings[j].numpy()), bool(queries.labels[i] == others.labels[j]))
        for i in range(len(queries.embeddings))
        for j in range(len(others.embeddings))
        if gallery is not None or i != j
    ]
    positives, negatives = [a for a, same in pairs if same], [a for a, same in pairs if not same]
    for rate, found in zip((0.01, 0.1), verification(queries, gallery, AFFINITIES[name], (0.01, 0.1)).values(), strict=True):
        allowed = [t for t in {a for a, _ in pairs} if sum(a >= t - 1e-12 for a in negatives) <= rate * len(negatives)]
        threshold = min(allowed, default=math.inf)
        assert found.value == pytest.approx(sum(a < threshold - 1e-12 for a in positives) / len(positives), abs=1e-12)
        assert found.chance == pytest.approx(1 - rate) and found.low <= found.value <= found.high


def test_rates_are_checked():
    with pytest.raises(ValueError, match=r"rates \(2\) must be between 0 and 1"):
        verification(points(), rates=(2,))


@pytest.mark.parametrize(
    ("name", "method"),
    [("squared", "csls"), ("cosine", "csls"), ("inner", "csls"), ("squared", "local_scaling"), ("cosine", "local_scaling")],
)
def test_corrected_affinities_are_those_of_a_literal_loop(name, method):
    queries, references, k = points(7, seed=2).embeddings.numpy(), points(20).embeddings.numpy(), 4
    near = []
    for i, r in enumerate(references):
        others = sorted((literal(name, r, one) for j, one in enumerate(references) if j != i), reverse=True)[:k]
        if method == "csls":
            near.append(sum(others) / k)
        else:
            near.append(math.sqrt(-others[-1] if name == "squared" else 2 - 2 * others[-1]))
    corrected = rescaled(torch.from_numpy(queries), torch.from_numpy(references), AFFINITIES[name], method, k)
    scores = corrected.queries.embeddings @ corrected.references.embeddings.T
    for i, q in enumerate(queries):
        plain = [literal(name, q, r) for r in references]
        if method == "csls":
            expected = [2 * s - h for s, h in zip(plain, near, strict=True)]
        else:
            expected = [(s if name == "squared" else 2 * s - 2) / h for s, h in zip(plain, near, strict=True)]
        assert np.allclose(scores[i], expected, rtol=1e-10, atol=1e-10)


def test_csls_lowers_hubness_in_many_dimensions_and_every_metric_takes_it():
    some = points(300, d=60, classes=10)
    mine, theirs, affinity = rescaled(some, some)
    assert hubness(mine, theirs, affinity)["hub_skewness"].value < hubness(some)["hub_skewness"].value
    assert retrieval(mine, theirs, affinity, draws=0)["map@r"].counted == 300
    assert nearest(mine, theirs, 3, affinity, exclude_same_id=True).positions.shape == (300, 3)


def test_an_affinity_that_cannot_be_corrected_is_named():
    with pytest.raises(ValueError, match="cannot be corrected by local_scaling; use squared Euclidean distances or cosines, or csls"):
        rescaled(torch.eye(3), torch.eye(3), InnerProduct(), "local_scaling")
    with pytest.raises(ValueError, match="method"):
        rescaled(torch.eye(3), torch.eye(3), method="cls")
