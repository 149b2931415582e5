"""k-means in matrix products: as good as scikit-learn's, and exact on well-separated clusters."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

from nearkin.evaluate.clustering import agreement
from nearkin.evaluate.k_means import k_means, lloyd
from nearkin.evaluate.mutual_information import expected_information


def blobs(n: int, d: int, clusters: int, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % clusters
    centers = spread * torch.randn(clusters, d, generator=generator, dtype=torch.float64)
    return centers[labels] + torch.randn(n, d, generator=generator, dtype=torch.float64), labels


def test_well_separated_clusters_are_found() -> None:
    x, labels = blobs(200, 5, 8, 30.0)
    found, inertia = lloyd(x, 8, 0)
    assert agreement(labels.numpy(), found.numpy())["ari"] == 1.0
    means = torch.stack([x[labels == c].mean(0) for c in range(8)])
    assert inertia == pytest.approx(float((x - means[labels]).square().sum()))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_inertia_is_that_of_scikit_learn(seed: int) -> None:
    x, _ = blobs(600, 8, 20, 1.5)
    ours = min(lloyd(x + 1000, 20, 10 * seed + start)[1] for start in range(4))  # far from the origin, too
    theirs = min(KMeans(20, n_init=1, random_state=10 * seed + start).fit(x.numpy()).inertia_ for start in range(4))
    assert ours == pytest.approx(theirs, rel=0.03)


def test_more_clusters_than_different_points_leave_some_empty() -> None:
    x = torch.tensor([[0.0], [0.0], [1.0], [1.0]], dtype=torch.float64)
    found, inertia = lloyd(x, 3, 0)
    assert inertia == 0 and found[0] == found[1] and found[2] == found[3] != found[0]


def test_a_cpu_uses_scikit_learn() -> None:
    x, _ = blobs(100, 3, 4, 3.0)
    found, inertia = k_means(x, 4, 7)
    fitted = KMeans(4, n_init=1, random_state=7).fit(x.numpy())
    assert found.tolist() == fitted.labels_.tolist() and inertia == fitted.inertia_


@pytest.mark.parametrize(("n", "classes", "clusters"), [(60, 5, 7), (300, 40, 30), (50, 1, 4), (50, 4, 1), (30, 1, 1), (12, 12, 12)])
def test_adjusted_information_is_that_of_scikit_learn(n: int, classes: int, clusters: int) -> None:
    generator = np.random.default_rng(n)
    truth, found = generator.permutation(np.arange(n) % classes), generator.integers(0, clusters, n)
    assert agreement(truth, found)["ami"] == pytest.approx(adjusted_mutual_info_score(truth, found), abs=1e-12)
    assert agreement(truth, truth)["ami"] == pytest.approx(1.0)
    expected = expected_mutual_information(contingency_matrix(truth, found, sparse=True), n)
    assert expected_information(truth, found) == pytest.approx(expected, abs=1e-12)
