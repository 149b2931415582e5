"""Where our metrics equal those of scikit-learn, pytorch-metric-learning and torchmetrics, and where they do not.

`python -m tests.evaluate.test_agreement` prints the tables of docs/concepts/metrics.md; the tests compare the page with the code.
"""

import logging
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nearkin.compose.affinity import SquaredEuclidean
from nearkin.compose.points import Points
from nearkin.evaluate import class_means, clustering, knn_accuracy, nearest_mean_predict, retrieval

PAGE = Path(__file__).parents[2] / "docs/concepts/metrics.md"
Table = dict[str, tuple[float, float]]


def drawn(n: int = 400, classes: int = 8, d: int = 6, seed: int = 0) -> Points:
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    return Points(torch.randn(n, d, generator=g) + torch.randn(classes, d, generator=g)[labels], labels)


def pml(points: Points, *include: str, k: int | None = None) -> dict[str, float]:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    logging.getLogger().setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: dict[str, float] = AccuracyCalculator(include=include, k=k, device=torch.device("cpu")).get_accuracy(
            points.embeddings, points.labels
        )
    return found


def flat(points: Points, positive: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, positives and query numbers of all pairs, as torchmetrics needs them: above 0, since it ignores scores below."""
    n = len(points.embeddings)
    near = -torch.cdist(points.embeddings.double(), points.embeddings.double(), compute_mode="donot_use_mm_for_euclid_dist")
    near = 1 / (1 - near) if positive else near
    other = ~torch.eye(n, dtype=torch.bool)
    positives = points.labels[:, None] == points.labels
    return near[other].float(), positives[other], torch.arange(n)[:, None].expand(n, n)[other]


def torchmetric(name: str, points: Points, positive: bool = True, **options: Any) -> float:
    from torchmetrics import retrieval as theirs

    near, positives, index = flat(points, positive)
    return float(getattr(theirs, name)(**options)(near, positives, indexes=index))


@cache
def same() -> Table:
    """Ours and theirs, where the definitions coincide."""
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

    points = drawn()
    known, other = (Points(points.embeddings[part], points.labels[part]) for part in (slice(0, 300), slice(300, 400)))
    mine = {name: score.value for name, score in retrieval(points, ks=(1, 5), draws=0).items()}
    peer = pml(points, "precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_average_precision", "mean_reciprocal_rank")
    x, y = known.embeddings.numpy(), known.labels.numpy()
    nearest_mean = float((nearest_mean_predict(other.embeddings, class_means(known)) == other.labels).double().mean())
    return {
        "precision@1, PML precision_at_1": (mine["precision@1"], peer["precision_at_1"]),
        "r_precision, PML r_precision": (mine["r_precision"], peer["r_precision"]),
        "map@r, PML mean_average_precision_at_r": (mine["map@r"], peer["mean_average_precision_at_r"]),
        "map, PML mean_average_precision, k = None": (mine["map"], peer["mean_average_precision"]),
        "mrr, PML mean_reciprocal_rank": (mine["mrr"], peer["mean_reciprocal_rank"]),
        "map, torchmetrics RetrievalMAP": (mine["map"], torchmetric("RetrievalMAP", points)),
        "mrr, torchmetrics RetrievalMRR": (mine["mrr"], torchmetric("RetrievalMRR", points)),
        "precision@5, torchmetrics RetrievalPrecision(top_k=5)": (mine["precision@5"], torchmetric("RetrievalPrecision", points, top_k=5)),
        "recall@5, torchmetrics RetrievalHitRate(top_k=5)": (mine["recall@5"], torchmetric("RetrievalHitRate", points, top_k=5)),
        "r_precision, torchmetrics RetrievalRPrecision": (mine["r_precision"], torchmetric("RetrievalRPrecision", points)),
        "1-nn accuracy, scikit-learn KNeighborsClassifier": (
            knn_accuracy(other, known, 1, SquaredEuclidean()),
            float(KNeighborsClassifier(1).fit(x, y).score(other.embeddings.numpy(), other.labels.numpy())),
        ),
        "nearest class mean, scikit-learn NearestCentroid": (
            nearest_mean,
            float(NearestCentroid().fit(x, y).score(other.embeddings.numpy(), other.labels.numpy())),
        ),
    }


def one_hit_first() -> Points:
    """Query 0 has ten positives: one next to it, nine after nine negatives."""
    place = torch.cat([torch.zeros(1), torch.ones(1), 2 + torch.arange(9.0), 20 + torch.arange(9.0)])
    return Points(place[:, None], torch.tensor([0, 0] + [1] * 9 + [0] * 9))


def of_the_first(name: str, points: Points, **options: Any) -> float:
    from torchmetrics import retrieval as theirs

    near, positives, index = flat(points)
    return float(getattr(theirs, name)(**options)(near[index == 0], positives[index == 0], indexes=index[index == 0]))


@cache
def different() -> Table:
    """Ours and theirs, where they differ."""
    sorted_by_class = Points(torch.zeros(60, 4), torch.arange(6).repeat_interleave(10))
    mixed = Points(torch.zeros(60, 4), torch.arange(60) % 6)
    barcodes = Points(torch.tensor([[0.0], [1.0], [0.1], [1.1]]), torch.tensor([2**24, 2**24 + 1, 2**24 + 1, 2**24]))
    perfect = Points(torch.arange(4.0).repeat_interleave(50)[:, None] * torch.ones(1, 2), torch.arange(4).repeat_interleave(50))
    perfect = perfect._replace(embeddings=perfect.embeddings + 1e-3 * torch.randn(200, 2, generator=torch.Generator().manual_seed(0)))
    singletons = Points(
        torch.cat([drawn(40, 4).embeddings, 50 + drawn(40, 4).embeddings]), torch.cat([drawn(40, 4).labels, 100 + torch.arange(40)])
    )
    hit = retrieval(one_hit_first(), ks=(10,), draws=0)
    points = drawn()
    noise = Points(torch.randn(600, 8, generator=torch.Generator().manual_seed(0)), torch.arange(600) % 150)
    found = clustering(noise, restarts=3)
    return {
        "map@r of a constant embedding, rows sorted by class; PML": (
            retrieval(sorted_by_class, draws=0)["map@r"].value,
            pml(sorted_by_class, "mean_average_precision_at_r")["mean_average_precision_at_r"],
        ),
        "map@r of the same embedding, rows mixed; PML": (
            retrieval(mixed, draws=0)["map@r"].value,
            pml(mixed, "mean_average_precision_at_r")["mean_average_precision_at_r"],
        ),
        "precision@1 of labels 2^24 and 2^24 + 1, all wrong; PML": (
            retrieval(barcodes, draws=0)["precision@1"].value,
            pml(barcodes, "precision_at_1", k=1)["precision_at_1"],
        ),
        "map@5 of a perfect embedding, R = 49; PML mean_average_precision, k = 5": (
            retrieval(perfect, ks=(5,), draws=0)["map@5"].value,
            pml(perfect, "mean_average_precision", k=5)["mean_average_precision"],
        ),
        "map@r of the same; PML mean_average_precision_at_r, k = 5": (
            retrieval(perfect, draws=0)["map@r"].value,
            pml(perfect, "mean_average_precision_at_r", k=5)["mean_average_precision_at_r"],
        ),
        "map@10, one hit at rank 1, R = 10; torchmetrics RetrievalMAP(top_k=10)": (
            float(hit["map@10"].per_query[0]),
            of_the_first("RetrievalMAP", one_hit_first(), top_k=10),
        ),
        "recall@5, any hit; torchmetrics RetrievalRecall(top_k=5), share of the positives": (
            retrieval(points, ks=(5,), draws=0)["recall@5"].value,
            torchmetric("RetrievalRecall", points, top_k=5),
        ),
        "map, 40 of 80 queries without positives; torchmetrics RetrievalMAP counts them as 0": (
            retrieval(singletons, draws=0)["map"].value,
            torchmetric("RetrievalMAP", singletons),
        ),
        "map by minus the distance; torchmetrics RetrievalMAP takes scores below 0 for not found": (
            retrieval(points, draws=0)["map"].value,
            torchmetric("RetrievalMAP", points, positive=False),
        ),
        "clusters of pure noise, 600 points in 150 classes: ami; nmi": (found["ami"].value, found["nmi"].value),
        "the same nmi's chance level; nmi": (found["nmi"].chance or 0.0, found["nmi"].value),
    }


def rows() -> dict[str, list[float]]:
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 3 and cells[1].replace(".", "").replace("-", "").isdigit():
            found[cells[0]] = [float(cell) for cell in cells[1:]]
    return found


@pytest.fixture(autouse=True)
def peers() -> None:
    for name in ("pytorch_metric_learning", "faiss", "torchmetrics"):
        pytest.importorskip(name)


def test_metrics_with_equal_definitions_are_equal() -> None:
    for case, (ours, theirs) in same().items():
        assert ours == pytest.approx(theirs, abs=2e-6), case


def test_the_page_prints_the_values_of_the_code() -> None:
    printed = rows()
    for case, values in {**same(), **different()}.items():
        assert printed[case] == pytest.approx(np.round(values, 4), abs=1.01e-4), case


if __name__ == "__main__":
    for table in (same(), different()):
        print("| case | nearkin | the other |\n|---|---|---|")
        for case, (ours, theirs) in table.items():
            print(f"| {case} | {ours:.4f} | {theirs:.4f} |")
