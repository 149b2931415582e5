"""Every objective equals its equation as a literal loop: each query's value, the mean, the sum, and the gradient with
respect to the embeddings and to the objective's own vectors.
Batches hold singletons, missing classes, identical embeddings, samples that occur twice, and ties (tests/batches.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given

from nearkin.compose.relation import LabelOverlap
from nearkin.objectives import (
    NCA,
    Angular,
    CenterLoss,
    CenterPull,
    Contrastive,
    Hinge,
    InstanceDiscrimination,
    LargeMarginSoftmax,
    LiftedStructure,
    NCARegression,
    NearestClassMean,
    NeighborhoodDiscovery,
    NormalizedSoftmax,
    NPair,
    PrecisionAtK,
    ProxyNCA,
    Softmax,
    Triplet,
)
from tests import oracles as o
from tests import pair_oracles as pairs
from tests.batches import BANK, CLASSES, Batch, Rows, batches, compare


@dataclass(frozen=True)
class Case:
    """An objective, its oracle (of the batch, its rows and the rows of the objective's own vectors), and its labels."""

    name: str
    build: Callable[[Batch], torch.nn.Module]
    oracle: Callable[[Batch, Rows, Rows], o.Values]
    labels: Callable[[Batch], Any] = lambda b: b.labels


def with_bank(objective: Any, b: Batch) -> Any:
    objective.references.vectors = b.bank.clone()
    return objective


def discovery(b: Batch) -> NeighborhoodDiscovery:
    objective = with_bank(NeighborhoodDiscovery(BANK, b.d, k=2), b)
    objective.trust(b.table, b.trusted)
    return objective


def with_centers(objective: Any, pull: CenterPull, b: Batch) -> Any:
    pull.references.vectors = b.anchors().clone()
    return objective


def center_pull(b: Batch) -> CenterPull:
    pull = CenterPull(CLASSES, b.d)
    return with_centers(pull, pull, b)


def center_loss(b: Batch) -> CenterLoss:
    loss = CenterLoss(CLASSES, b.d, weight=0.3)
    return with_centers(loss, loss.terms["center"], b)


def center_loss_oracle(b: Batch, z: Rows, w: Rows) -> o.Values:
    heads = o.softmax(z, b.labels, w)
    pulls = o.center_pull(z, b.labels, o.scalars(b.anchors()))
    return [(head + 0.3 * pull, 1.0) for (head, _), (pull, _) in zip(heads, pulls, strict=True)]


def annealed(m: int, least: float, b: Batch) -> LargeMarginSoftmax:
    objective = LargeMarginSoftmax(CLASSES, b.d, m=m, base=3.0, gamma=0.1, power=2.0, lambda_min=least)
    for _ in range(4):
        objective.update(b.z, b.labels)
    return objective


def precision_case(k: int, margin: float, released: bool = False, covariance: float = 0.0, balanced: bool = False) -> Case:
    return Case(
        f"precision at {k}" + " log-sum-exp" * released + " covariance" * (covariance > 0) + " balanced" * balanced,
        lambda _: PrecisionAtK(k, margin, released, covariance, balanced),
        lambda b, z, _: o.precision_at_k(b.crowd(z), k, margin, released, covariance, balanced),
    )


def triplet_case(choice: Any, choose: pairs.Choose, metric: Any = "cosine", k: int = 2) -> Case:
    near = o.cosine() if metric == "cosine" else o.minus_squared()
    return Case(
        f"triplet {choice} {metric}",
        lambda _: Triplet(choice, 0.35, metric, k=k),
        lambda b, z, _: pairs.triplets(b.crowd(z), near, 0.35, choose),
    )


def margin_cases() -> list[Case]:
    plain = [
        Case(
            f"large margin m={m}",
            lambda b, m=m: LargeMarginSoftmax(CLASSES, b.d, m=m, base=0.0),
            lambda b, z, w, m=m: o.large_margin_softmax(z, b.labels, w, m, 0.0),
        )
        for m in (1, 2, 3, 4)
    ]
    mixed = [
        Case(
            f"large margin m={m} annealed",
            lambda b, m=m, least=least: annealed(m, least, b),
            lambda b, z, w, m=m, least=least: o.large_margin_softmax(z, b.labels, w, m, max(3.0 / 1.4**2, least)),
        )
        for m, least in ((2, 0.5), (4, 2.0))
    ]
    return plain + mixed


def ncm_case(metric: Any, scale: float) -> Case:
    return Case(
        f"nearest class mean {metric} x{scale}",
        lambda b: NearestClassMean(b.anchors() + 0.01, metric, scale),
        lambda b, z, _: o.nearest_class_mean(z, b.labels, o.scalars(b.anchors() + 0.01), metric, scale),
    )


SQUARED = o.minus_squared
CASES = [
    Case("nca log", lambda _: NCA(), lambda b, z, _: o.nca_log(b.crowd(z), b.crowd(z), SQUARED())),
    Case("nca log cold", lambda _: NCA(temperature=0.4), lambda b, z, _: o.nca_log(b.crowd(z), b.crowd(z), SQUARED(0.4))),
    Case(
        "nca log cosine",
        lambda _: NCA(temperature=0.1, metric="cosine"),
        lambda b, z, _: o.nca_log(b.crowd(z), b.crowd(z), o.cosine(0.1)),
    ),
    Case("nca expected", lambda _: NCA("expected", 3.0), lambda b, z, _: o.nca_expected(b.crowd(z), b.crowd(z), SQUARED(3.0))),
    Case(
        "nca expected cosine",
        lambda _: NCA("expected", 0.5, "cosine"),
        lambda b, z, _: o.nca_expected(b.crowd(z), b.crowd(z), o.cosine(0.5)),
    ),
    Case(
        "nca log of sets",
        lambda _: NCA(relation=LabelOverlap()),
        lambda b, z, _: o.shared_log(*[b.crowd(z, b.sets.tolist())] * 2, SQUARED(), o.overlap_cost),
        lambda b: b.sets,
    ),
    Case(
        "nca expected of sets",
        lambda _: NCA("expected", 2.0, relation=LabelOverlap()),
        lambda b, z, _: o.expected_cost(*[b.crowd(z, b.sets.tolist())] * 2, SQUARED(2.0), o.overlap_cost),
        lambda b: b.sets,
    ),
    Case(
        "nca regression",
        lambda _: NCARegression(2.0),
        lambda b, z, _: o.expected_cost(*[b.crowd(z, b.targets.tolist())] * 2, SQUARED(2.0), o.target_distance),
        lambda b: b.targets,
    ),
    ncm_case("euclidean", 1.0),
    ncm_case("euclidean", 4.0),
    ncm_case("cosine", 1.0),
    ncm_case("cosine", 10.0),
    Case(
        "instance discrimination",
        lambda b: with_bank(InstanceDiscrimination(BANK, b.d), b),
        lambda b, z, _: o.discovery(z, b.samples, o.scalars(b.bank), 0.1, lambda _: []),
        lambda _: None,
    ),
    Case(
        "neighborhood discovery",
        discovery,
        lambda b, z, _: o.discovery(z, b.samples, o.scalars(b.bank), 0.1, lambda i: b.table[i].tolist() if b.trusted[i] else []),
        lambda _: None,
    ),
    precision_case(1, 0.1),
    precision_case(2, 0.3),
    precision_case(9, 0.1),
    precision_case(2, 0.2, released=True),
    precision_case(3, 0.05, covariance=0.1),
    precision_case(2, 0.1, balanced=True),
    precision_case(2, 0.2, released=True, covariance=0.1, balanced=True),
    Case("softmax", lambda b: Softmax(CLASSES, b.d), lambda b, z, w: o.softmax(z, b.labels, w)),
    Case("hinge", lambda b: Hinge(CLASSES, b.d), lambda b, z, w: o.crammer_singer(z, b.labels, w, 1.0)),
    Case("hinge every", lambda b: Hinge(CLASSES, b.d, "weston-watkins", 0.7), lambda b, z, w: o.weston_watkins(z, b.labels, w, 0.7)),
    Case("hinge rest", lambda b: Hinge(CLASSES, b.d, "one-vs-rest", 0.7), lambda b, z, w: o.one_vs_rest(z, b.labels, w, 0.7)),
    *margin_cases(),
    Case("center pull", center_pull, lambda b, z, _: o.center_pull(z, b.labels, o.scalars(b.anchors()))),
    Case("center loss", center_loss, center_loss_oracle),
    Case("contrastive", lambda _: Contrastive(), lambda b, z, _: pairs.contrastive(b.crowd(z), 1.0, True)),
    Case("contrastive at large", lambda _: Contrastive(2.5, False), lambda b, z, _: pairs.contrastive(b.crowd(z), 2.5, False)),
    triplet_case("uniform", pairs.uniform),
    triplet_case("uniform", pairs.uniform, "squared_euclidean"),
    triplet_case("hard", pairs.hard),
    triplet_case("semi-hard", pairs.semi_hard),
    triplet_case("semi-hard", pairs.semi_hard, "squared_euclidean"),
    triplet_case("misplaced", pairs.misplaced_pairs(2)),
    Case("lifted", lambda _: LiftedStructure(), lambda b, z, _: pairs.lifted(b.crowd(z), 1.0)),
    Case("n-pair", lambda _: NPair(0.01), lambda b, z, _: pairs.n_pair(b.crowd(z), 0.01)),
    Case("angular", lambda _: Angular(40.0), lambda b, z, _: pairs.angular(b.crowd(z), 40.0)),
    Case(
        "angular, misplaced",
        lambda _: Angular(40.0, choice="misplaced", k=2),
        lambda b, z, _: pairs.angular_misplaced(b.crowd(z), 40.0, 2, 0.1),
    ),
    Case("proxy-nca", lambda b: ProxyNCA(CLASSES, b.d), lambda b, z, w: o.proxy_nca(z, b.labels, w, 1 / 3, "published")),
    Case(
        "proxy-nca softmax",
        lambda b: ProxyNCA(CLASSES, b.d, "softmax", 0.5),
        lambda b, z, w: o.proxy_nca(z, b.labels, w, 0.5, "softmax"),
    ),
    Case(
        "normalized softmax",
        lambda b: NormalizedSoftmax(CLASSES, b.d, 0.1),
        lambda b, z, w: o.normalized_softmax(z, b.labels, w, 0.1),
    ),
]


def with_biases(vectors: Rows, biases: Rows | None = None) -> Rows:
    return vectors if biases is None else [(*vector, *bias) for vector, bias in zip(vectors, biases, strict=True)]


def check(case: Case, b: Batch) -> bool:
    objective = case.build(b).double()
    z = b.z.clone().requires_grad_()
    own = list(objective.parameters())
    for vectors in own:
        vectors.data = (b.vectors[:, : vectors.shape[1]] if vectors.ndim == 2 else b.vectors[:, -1]).clone()
    labels = case.labels(b)
    ids = None if labels is not None and b.samples == list(range(len(b.samples))) else b.samples
    return compare(
        lambda reduction: objective(z, labels, ids=ids, reduction=reduction),
        [z, *own],
        lambda rows: case.oracle(b, rows[0], with_biases(*rows[1:]) if own else rows[0]),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_objective_equals_its_equation(case: Case) -> None:
    smooth = []

    @given(batches())
    def run(batch: Batch) -> None:
        smooth.append(check(case, batch))

    run()
    assert sum(smooth) >= 5, "too few gradients were compared"
