"""Wrong arguments raise an error that names the argument, the value and the fix; nothing is dropped silently."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bench import catalog
from nearkin import objectives as nk
from nearkin.compose import value_checks
from nearkin.compose.affinity import Euclidean, cosine
from nearkin.compose.criterion import any_positive, each_positive
from nearkin.compose.points import Points, fresh_ids
from nearkin.compose.references import InBatch, MemoryBank
from nearkin.compose.references.anchors import circle, orthonormal, packed, simplex, smallest_angle
from nearkin.compose.relation import LabelDistance, LabelOverlap, SameLabel
from nearkin.objectives import NCA, ArcFace, Matryoshka, NCARegression, NearestClassMean, NeighborhoodObjective, SupCon, WeightedSum

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 0, 1, 1, 2, 2])
IDS = torch.arange(6)
FINE = Points(X, Y, IDS)


def changed(x: Tensor, at: Any, value: float) -> Tensor:
    x = x.clone()
    x[at] = value
    return x


EVERY: dict[str, Callable[[], nn.Module]] = {
    "NCA": NCA,
    "NCARegression": NCARegression,
    "NearestClassMean": lambda: NearestClassMean(torch.eye(3, 4)),
    "Softmax": lambda: nk.Softmax(3, 4),
    "Hinge": lambda: nk.Hinge(3, 4),
    "ProxyNCA": lambda: nk.ProxyNCA(3, 4),
    "NormalizedSoftmax": lambda: nk.NormalizedSoftmax(3, 4),
    "LargeMarginSoftmax": lambda: nk.LargeMarginSoftmax(3, 4),
    "Contrastive": nk.Contrastive,
    "Triplet": nk.Triplet,
    "NPair": nk.NPair,
    "LiftedStructure": nk.LiftedStructure,
    "Angular": nk.Angular,
    "PrecisionAtK": nk.PrecisionAtK,
    "InstanceDiscrimination": lambda: nk.InstanceDiscrimination(6, 4),
    "NeighborhoodDiscovery": lambda: nk.NeighborhoodDiscovery(6, 4),
    "CenterPull": lambda: nk.CenterPull(3, 4),
    "CenterLoss": lambda: nk.CenterLoss(3, 4),
}
OWN_VECTORS = ("NearestClassMean", "Softmax", "Hinge", "ProxyNCA", "NormalizedSoftmax", "LargeMarginSoftmax", "CenterPull", "CenterLoss")
BANKS = ("InstanceDiscrimination", "NeighborhoodDiscovery")
CLASSED = [name for name in EVERY if name not in ("NCARegression", *BANKS)]
BATCHES = [name for name in CLASSED if name not in OWN_VECTORS]
every, classed = pytest.mark.parametrize("name", EVERY), pytest.mark.parametrize("name", CLASSED)


@every
@pytest.mark.parametrize(
    ("x", "error", "match"),
    [
        ([[1.0, 2.0]] * 6, TypeError, "embeddings must be a float tensor, not list; pass the network's output"),
        (X.long(), TypeError, "embeddings must be a float tensor, not torch.int64"),
        (X.to(torch.complex64), TypeError, "embeddings must be a float tensor, not torch.complex64"),
        (X[0], ValueError, r"embeddings has shape \(4,\); it must be \(n, d\), one row for each sample"),
        (X[:, :, None], ValueError, r"embeddings has shape \(6, 4, 1\); it must be \(n, d\)"),
        (X[:0], ValueError, r"embeddings is empty, shape \(0, 4\); a batch needs at least one row"),
        (X[:, :0], ValueError, r"embeddings is empty, shape \(6, 0\)"),
        (changed(X, ([1, 4], [0, 2]), torch.nan), ValueError, r"embeddings contains NaN or infinity, first in rows \[1, 4\]; lower"),
        (changed(X, 5, -torch.inf), ValueError, r"embeddings contains NaN or infinity, first in rows \[5\]"),
    ],
    ids=["list", "integer", "complex", "vector", "cube", "no rows", "no columns", "nan", "inf"],
)
def test_bad_embeddings(name: str, x: Any, error: type[Exception], match: str) -> None:
    objective = EVERY[name]()
    with pytest.raises(error, match=match):
        objective(x, Y, ids=IDS)


def test_only_the_first_five_bad_rows_are_named() -> None:
    with pytest.raises(ValueError, match=r"rows \[0, 1, 2, 3, 4\]; lower the learning rate, or check the input of these rows"):
        NCA()(X * torch.nan, Y)


@classed
@pytest.mark.parametrize(
    ("y", "error", "match"),
    [
        (None, ValueError, r"labels are missing: pass one integer class for each embedding, shape \(n,\)"),
        (Y[:5], ValueError, "labels has 5 entries for 6 embeddings; pass one for each"),
        (torch.tensor(3), ValueError, "labels is a single value; pass one entry for each embedding"),
        (
            Y[:, None],
            ValueError,
            r"labels has shape \(6, 1\); classes must be \(n,\). For multi-hot label sets use NCA\(relation=LabelOverlap",
        ),
        (Y.float(), TypeError, r"labels have dtype torch.float32; classes must be integers. For numbers use NCARegression\(\)"),
        ([0.5] * 6, TypeError, "labels have dtype torch.float64; classes must be integers"),
        (Y.to(torch.complex64), TypeError, "labels have dtype torch.complex64; classes must be integers"),
        (
            ["cat"] * 6,
            TypeError,
            r"labels have dtype <U3, not numbers; encode names first: codes, classes = nearkin.encode_labels\(labels\)",
        ),
        ([None] * 6, TypeError, "labels have dtype object, not numbers; encode names first"),
    ],
    ids=["missing", "short", "scalar", "column", "float", "float list", "complex", "names", "objects"],
)
def test_bad_classes(name: str, y: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        EVERY[name]()(X, y, ids=IDS)


AMONG_EACH_OTHER = [
    case
    for case in catalog.cases(options=False)
    if isinstance(made := case.build(), nk.Objective) and made.supervision == "classes" and made.known_classes() is None
]


def test_every_objective_over_the_batch_is_tried() -> None:
    assert len(AMONG_EACH_OTHER) >= 19 and set(BATCHES) <= {case.name for case in AMONG_EACH_OTHER}


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("case", AMONG_EACH_OTHER, ids=lambda case: case.name)
def test_one_class_only_is_loss_0_and_said_once(case: catalog.Case, reduction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception would stall the other ranks of a run; what cannot be learned from is skipped and counted."""
    monkeypatch.setattr(value_checks, "_told", set())
    name, objective, live = case.name, case.build(), X.clone().requires_grad_()
    with pytest.warns(UserWarning, match=f"{name}: the labels of a batch contain one class only, so there are no negatives: its loss"):
        loss = objective(live, torch.full((6,), 7), reduction=reduction)
    loss.sum().backward()
    assert not loss.any() and not live.grad.any() and objective.last.skipped == 6 and objective.last.active == 0
    objective(live, torch.full((6,), 7))  # said once: another warning would be an error here
    objective(live, Y)
    assert objective.last.valid > 0


@pytest.mark.parametrize("name", BATCHES)
def test_a_single_point_has_loss_0(name: str) -> None:
    """As the last batch of a DataLoader may be."""
    alone = X[:1].clone().requires_grad_()
    loss = EVERY[name]()(alone, torch.tensor([7]))
    loss.backward()
    assert loss == 0 and alone.grad is not None and not alone.grad.any()


def test_one_class_in_the_batch_and_another_among_the_references_is_fine() -> None:
    same = torch.zeros(6, dtype=torch.long)
    assert NCA()(X, same, ids=IDS, references=Points(X, Y, fresh_ids(6))).isfinite()
    value_checks._told.discard("NCA: two classes")
    with pytest.warns(UserWarning, match="one class only"):
        assert NCA()(X, same, ids=IDS, references=Points(X, same, fresh_ids(6))) == 0


@pytest.mark.parametrize("name", OWN_VECTORS)
def test_labels_must_be_known_and_dimensions_must_fit(name: str) -> None:
    objective = EVERY[name]()
    with pytest.raises(
        ValueError, match="labels run from 0 to 3, but this objective was built for the classes 0 to 2; encode them with nearkin"
    ):
        objective(X, changed(Y, 5, 3))
    with pytest.raises(ValueError, match="labels run from -1 to 2"):
        objective(X, changed(Y, 0, -1))
    with pytest.raises(
        ValueError, match="embeddings have 3 dimensions, but this objective was built for 4; build it with dimension= the network's"
    ):
        objective(X[:, :3], Y)


@pytest.mark.parametrize("name", ["CenterPull", "CenterLoss", *BANKS])
def test_update_checks_as_the_call_does(name: str) -> None:
    objective = EVERY[name]()
    with pytest.raises(ValueError, match="embeddings have 1 dimensions, but this objective was built for 4"):
        objective.update(X[:, :1], Y, ids=IDS)
    with pytest.raises(ValueError, match=r"embeddings contains NaN or infinity, first in rows \[2\]"):
        objective.update(changed(X, 2, torch.nan), Y, ids=IDS)
    assert all(t.isfinite().all() for t in objective.state_dict().values())


@pytest.mark.parametrize("form", ["integer", "read-only", "reversed", "list", "bool", "uint8"])
def test_every_kind_of_whole_number_is_a_class(form: str) -> None:
    array = Y.numpy().copy()
    frozen = array.copy()
    frozen.flags.writeable = False
    given = {
        "integer": Y.int(),
        "read-only": frozen,
        "reversed": array[::-1].copy()[::-1],
        "list": Y.tolist(),
        "bool": Y > 0,
        "uint8": Y.byte(),
    }
    expected = NCA()(X, (Y > 0).long() if form == "bool" else Y)
    assert NCA()(X, given[form]) == expected


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (None, r"labels are missing: pass the targets, shape \(n,\) or \(n, t\)"),
        (torch.zeros(6, 1, 1), r"labels has shape \(6, 1, 1\); targets must be real numbers of shape \(n,\) or \(n, t\)"),
        (
            changed(torch.zeros(6), 4, torch.nan),
            r"labels contain NaN or infinity, first in rows \[4\]; drop these samples or fill in their targets",
        ),
        (changed(torch.zeros(6, 2), (3, 1), torch.inf), r"labels contain NaN or infinity, first in rows \[3\]"),
        (torch.zeros(6, dtype=torch.complex64), "targets must be real numbers"),
        (torch.zeros(7), "labels has 7 entries for 6 embeddings"),
    ],
)
def test_bad_targets(y: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        NCARegression()(X, y)


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (None, "labels are missing: pass multi-hot label sets of zeros and ones"),
        (Y, r"labels has shape \(6,\); label sets must be \(n, C\), one column for each label"),
        (torch.full((6, 2), 2), "labels contain values other than 0 and 1; label sets must be multi-hot"),
        (torch.full((6, 2), torch.nan), "labels contain values other than 0 and 1"),
    ],
)
def test_bad_sets(y: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        NCA(relation=LabelOverlap())(X, y)


@every
def test_bad_ids(name: str) -> None:
    objective = EVERY[name]()
    with pytest.raises(TypeError, match=r"ids have dtype torch.float32; ids must be integers, the samples' numbers in the data set"):
        objective(X, Y, ids=IDS.float())
    with pytest.raises(TypeError, match=r"ids have dtype torch.bool; ids must be integers"):
        objective(X, Y, ids=Y > 0)
    with pytest.raises(
        TypeError, match=r"ids have dtype <U1, not numbers; encode names first: codes, classes = nearkin.encode_labels\(ids\)"
    ):
        objective(X, Y, ids=list("abcdef"))
    with pytest.raises(ValueError, match=r"ids has shape \(5,\) for 6 embeddings; pass one integer for each"):
        objective(X, Y, ids=IDS[:5])
    with pytest.raises(ValueError, match=r"ids has shape \(6, 1\) for 6 embeddings"):
        objective(X, Y, ids=IDS[:, None])


@every
def test_bad_reduction(name: str) -> None:
    with pytest.raises(ValueError, match="reduction 'average' is unknown; choose one of mean, sum, none"):
        EVERY[name]()(X, Y, ids=IDS, reduction="average")


@pytest.mark.parametrize(
    ("references", "error", "match"),
    [
        (X, TypeError, r"references must be Points\(embeddings, labels, ids\), not Tensor"),
        ((X, Y, IDS, IDS), TypeError, "references must be Points"),
        (Points(X[0], Y, IDS), ValueError, r"references.embeddings has shape \(4,\)"),
        (Points(X[:0], Y[:0], IDS[:0]), ValueError, "references.embeddings is empty"),
        (Points(changed(X, 3, torch.nan), Y, IDS), ValueError, r"references.embeddings contains NaN or infinity, first in rows \[3\]"),
        (Points(X[:, :3], Y, IDS), ValueError, "references have 3 dimensions and embeddings 4; compute both with the same network"),
        (Points(X, None, IDS), ValueError, "references.labels are missing"),
        (Points(X, Y[:4], IDS), ValueError, "references.labels has 4 entries for 6 embeddings"),
        (Points(X, Y.float(), IDS), TypeError, "references.labels have dtype torch.float32"),
        (Points(X, Y, None), ValueError, r"references= needs ids on both sides.* use ids=nearkin.compose.fresh_ids\(m\)"),
        (Points(X, Y, IDS[:2]), ValueError, r"references.ids has shape \(2,\) for 6 embeddings"),
    ],
)
def test_bad_references(references: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        NCA()(X, Y, ids=IDS, references=references)


def test_references_without_ids_in_the_batch_and_of_other_columns() -> None:
    with pytest.raises(ValueError, match="references= needs ids on both sides"):
        NCA()(X, Y, references=FINE)
    with pytest.raises(
        ValueError, match=r"references.labels have shape \(6, 1\) and labels \(6, 3\); both need the same number of columns"
    ):
        NCARegression()(X, torch.zeros(6, 3), ids=IDS, references=Points(X, torch.zeros(6, 1), IDS))
    assert NCA()(X, Y, ids=IDS, references=(X, Y, IDS)) == NCA()(X, Y), "a plain tuple works"


@pytest.mark.parametrize("name", ["LargeMarginSoftmax", "LiftedStructure", "Angular", "Softmax", "Hinge", "CenterLoss"])
def test_objectives_that_take_no_references(name: str) -> None:
    with pytest.raises(ValueError, match="and takes no references="):
        EVERY[name]()(X, Y, ids=IDS, references=FINE)


@pytest.mark.parametrize("name", BANKS)
def test_banks_know_points_by_their_ids(name: str) -> None:
    objective = EVERY[name]()
    for use in (objective, objective.update):
        with pytest.raises(ValueError, match="ids are missing: the bank keeps one slot for each sample and knows it by its id; pass ids="):
            use(X)
        for wrong in (IDS - 1, IDS + 1):
            with pytest.raises(ValueError, match=rf"ids run from {wrong[0]} to {wrong[-1]}, but the bank has the slots 0 to 5"):
                use(X, ids=wrong)


def test_relations_by_id_say_when_ids_are_missing_or_unknown() -> None:
    away = Points(X, None, IDS)
    with pytest.raises(ValueError, match="ids run from -1 to 4, but the table has the rows 0 to 5"):
        nk.NeighborhoodDiscovery(6, 4)(X, ids=IDS - 1, references=away)
    with pytest.raises(ValueError, match="labels are missing: this relation compares them"):
        NeighborhoodObjective(MemoryBank(6, 4), cosine(), SameLabel(), any_positive)(X, Y, ids=IDS)


@pytest.mark.parametrize(
    ("table", "trusted", "error", "match"),
    [
        (IDS[:, None], None, ValueError, r"table has shape \(6, 1\); this relation holds \(6, 2\): a row for every point"),
        (torch.zeros(6, 3).long(), None, ValueError, r"holds \(6, 2\): .*; build it with k=3, or discover with k=2"),
        (torch.zeros(5, 2).long(), None, ValueError, r"has shape \(5, 2\); this relation holds \(6, 2\): .*; give such a table"),
        (IDS, None, ValueError, r"has shape \(6,\); this relation holds \(6, 2\): .*; give such a table"),
        ([[1, 2]], None, ValueError, "table must be a tensor or a numpy array of numbers in memory, not list"),
        (torch.ones(6, 2).bool(), None, TypeError, "table is torch.bool; a table holds integer ids"),
        (torch.arange(-6, 6).reshape(6, 2), None, ValueError, "table holds ids from -6 to 5; ids run from 0 to 5"),
        (torch.arange(12).reshape(6, 2).clamp_max(6), None, ValueError, "table holds ids from 0 to 6; ids run from 0 to 5"),
        (torch.full((6, 2), -1), None, ValueError, "table holds ids from -1 to -1; ids run from 0 to 5"),
        (torch.zeros(6, 2), None, TypeError, "table is torch.float32; a table holds integer ids"),
        (torch.zeros(6, 2, dtype=torch.long), IDS, TypeError, "trusted is torch.int64; trusted holds truth values"),
        (torch.zeros(6, 2, dtype=torch.long), IDS[:5] > 0, ValueError, r"trusted has shape \(5,\); give one truth value for each of the 6"),
    ],
)
def test_bad_discoveries(table: Tensor, trusted: Tensor | None, error: type[Exception], match: str) -> None:
    objective = nk.NeighborhoodDiscovery(6, 4, k=2)
    with pytest.raises(error, match=match):
        objective.trust(table, trusted)
    assert not objective.relation.trusted.any()


BUILDERS: list[tuple[Callable[[], Any], str]] = [
    (lambda: NCA("logg"), "form 'logg' is unknown .did you mean 'log'..; choose one of log, expected"),
    (
        lambda: NCA(metric="euclidean"),
        "metric 'euclidean' is unknown .did you mean 'squared_euclidean'..; choose one of squared_euclidean, cosine",
    ),
    (lambda: NCA(temperature=0), r"temperature \(0\) must be a finite number above 0"),
    (lambda: NCA(temperature=float("inf")), r"temperature \(inf\) must be a finite number above 0"),
    (lambda: NCARegression(-1.0), r"temperature \(-1.0\) must be a finite number above 0"),
    (lambda: NCARegression(metric="manhattan"), "metric 'manhattan' is unknown"),
    (lambda: NearestClassMean(torch.eye(3), "manhattan"), "metric 'manhattan' is unknown; choose one of euclidean, cosine"),
    (lambda: NearestClassMean(torch.eye(3), scale=0), r"scale \(0\) must be a finite number above 0"),
    (
        lambda: NearestClassMean(torch.eye(3)[0]),
        r"anchors have shape \(3,\) and type torch.float32; give a float tensor \(C, d\) with C >= 2",
    ),
    (lambda: NearestClassMean(torch.ones(1, 3)), r"anchors have shape \(1, 3\)"),
    (lambda: NearestClassMean(torch.eye(3).long()), "type torch.int64; give a float tensor"),
    (lambda: NearestClassMean(torch.eye(3) * torch.nan), "anchors hold NaN or infinity in 3 rows, first in .0, 1, 2.; make them with"),
    (lambda: nk.Hinge(3, 4, "squared"), "form 'squared' is unknown; choose one of crammer-singer, weston-watkins, one-vs-rest"),
    (lambda: nk.Hinge(3, 4, margin=0), r"margin \(0\) must be a finite number above 0"),
    (lambda: nk.ProxyNCA(3, 4, "paper"), "form 'paper' is unknown; choose one of published, softmax"),
    (lambda: nk.ProxyNCA(3, 4, temperature=0), r"temperature \(0\) must be a finite number above 0"),
    (lambda: nk.NormalizedSoftmax(3, 4, 0), r"temperature \(0\) must be a finite number above 0"),
    (lambda: nk.Softmax(1, 4), r"num_classes \(1\) must be a whole number of at least 2"),
    (lambda: nk.Softmax(3, 0), r"dimension \(0\) must be a whole number of at least 1: it is the embedding's size"),
    (lambda: nk.LargeMarginSoftmax(3, 4, m=5), r"m \(5\) must be 1, 2, 3 or 4: it is the factor of the angle"),
    (lambda: nk.Contrastive(0), r"margin \(0\) must be a finite number above 0"),
    (lambda: nk.Contrastive(2.5), r"margin \(2.5\) is above 2, the largest distance of unit vectors; lower it, or pass normalize=False"),
    (lambda: nk.Triplet("easy"), "choice 'easy' is unknown; choose one of uniform, hard, semi-hard, distance-weighted, misplaced"),
    (
        lambda: nk.Triplet(metric="euclidean"),
        "metric 'euclidean' is unknown .did you mean 'squared_euclidean'..; choose one of cosine, squared_euclidean",
    ),
    (lambda: nk.Triplet(margin=-1), r"margin \(-1\) must be a finite number above 0"),
    (lambda: nk.Triplet("misplaced", k=0), r"k \(0\) must be a whole number of at least 1"),
    (lambda: nk.Triplet("distance-weighted"), r"dimension \(0\) must be the embedding's size, at least 3, for choice='distance-weighted'"),
    (
        lambda: nk.Triplet("distance-weighted", metric="squared_euclidean", dimension=4),
        "metric 'squared_euclidean' does not work with choice='distance-weighted'",
    ),
    (lambda: nk.NPair(-0.1), r"l2 \(-0.1\) must be at least 0: it is the weight of the embeddings' squared length"),
    (lambda: nk.LiftedStructure(0), r"margin \(0\) must be a finite number above 0"),
    (lambda: nk.Angular(0), r"alpha \(0\) must lie in \(0, 60\] degrees; the paper uses 36 to 55"),
    (lambda: nk.Angular(61), r"alpha \(61\) must lie in \(0, 60\]"),
    (lambda: nk.PrecisionAtK(0), r"k \(0\) must be a whole number of at least 1"),
    (lambda: nk.PrecisionAtK(2.5), r"k \(2.5\) must be a whole number of at least 1"),
    (lambda: nk.PrecisionAtK(True), r"k \(True\) must be a whole number of at least 1"),
    (lambda: nk.PrecisionAtK(5, 0), r"margin \(0\) must be a finite number above 0"),
    (lambda: nk.InstanceDiscrimination(6, 4, 0), r"temperature \(0\) must be a finite number above 0"),
    (
        lambda: nk.InstanceDiscrimination(0, 4),
        r"size \(0\) must be a whole number of at least 1: the bank has one slot for each training sample",
    ),
    (lambda: nk.InstanceDiscrimination(6, 0), r"dimension \(0\) must be a whole number of at least 1"),
    (lambda: nk.InstanceDiscrimination(6, 4, momentum=0), r"momentum \(0\) must lie in \(0, 1\]: it is the share of the new embedding"),
    (lambda: nk.InstanceDiscrimination(6, 4, start="zeros"), "start 'zeros' is unknown; choose one of normalized, released"),
    (lambda: nk.NeighborhoodDiscovery(6, 4, 6), r"k \(6\) must be below the number of samples \(6\): a sample has at most 5 neighbors"),
    (lambda: nk.NeighborhoodDiscovery(6.0, 4), r"size \(6.0\) must be a whole number of at least 1: the bank has one slot"),
    (lambda: nk.NeighborhoodDiscovery("6", 4), r"size \('6'\) must be a whole number of at least 1: the bank has one slot"),
    (lambda: nk.NeighborhoodDiscovery(0, 4), r"size \(0\) must be a whole number of at least 1: the bank has one slot"),
    (lambda: nk.NeighborhoodDiscovery(6, 4.0), r"dimension \(4.0\) must be a whole number of at least 1: it is the embedding's size"),
    (lambda: nk.NeighborhoodDiscovery(6, 4, 0), r"k \(0\) must be a whole number of at least 1"),
    (lambda: nk.NeighborhoodDiscovery(6, 4, temperature=-1), r"temperature \(-1\) must be a finite number above 0"),
    (lambda: nk.CenterLoss(0, 4), r"num_classes \(0\) must be a whole number of at least 2"),
    (lambda: nk.CenterPull(0, 4), r"num_classes \(0\) must be a whole number of at least 1: every label needs its center"),
    (lambda: MemoryBank(6, 4, labels=[0] * 6), "labels must be a tensor or a numpy array of numbers in memory, not list"),
    (lambda: MemoryBank(6, 4, labels=Y[:4]), "labels has 4 entries for a bank of 6; give one for each slot"),
    (lambda: WeightedSum({}), r"terms is empty; pass at least one, {name: \(weight, objective\)}"),
    (lambda: NCA(engine="jax"), "engine 'jax' is unknown; choose one of auto, dense"),
    (lambda: NCA(precision="low"), "precision 'low' is unknown; choose one of highest, high, fast"),
    (lambda: orthonormal(5, 4), r"5 orthonormal anchors do not fit into 4 dimensions; raise dimension to 5, or use packed\(\)"),
    (lambda: simplex(6, 4), r"a simplex of 6 anchors does not fit into 4 dimensions; raise dimension to 5, or use packed\(\)"),
    (lambda: circle(1), r"num_classes \(1\) must be a whole number of at least 2"),
    (lambda: orthonormal(1, 4), r"num_classes \(1\) must be a whole number of at least 2"),
    (lambda: simplex(1, 4), r"num_classes \(1\) must be a whole number of at least 2"),
    (lambda: packed(5, 1), r"dimension \(1\) must be a whole number of at least 2: on a line only two directions exist"),
    (lambda: smallest_angle(torch.ones(1, 2)), r"the number of anchors \(1\) must be a whole number of at least 2: an angle needs two"),
]


@pytest.mark.parametrize(("build", "match"), BUILDERS, ids=[match[:30] for _, match in BUILDERS])
def test_bad_builders(build: Callable[[], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        build()


def test_impossible_compositions() -> None:
    with pytest.raises(TypeError, match=r"term 'a' is a Linear; a term must be \(weight, objective\)"):
        WeightedSum({"a": (1.0, nn.Linear(1, 1))})
    with pytest.raises(ValueError, match="engine 'torch' does not know this composition; use engine='dense' or leave it at 'auto'"):
        NeighborhoodObjective(InBatch(), Euclidean(), SameLabel(), each_positive, engine="torch")


def test_a_callers_own_functions_must_return_queries_by_references() -> None:
    with pytest.raises(ValueError, match=r"the given distance returned shape \(6,\); it must be \(6, 3\): queries by references"):
        NearestClassMean(torch.eye(3, 4), lambda f, a: (f - a[0]).norm(dim=1))(X, Y)
    with pytest.raises(ValueError, match=r"the given label distance returned shape \(6, 1\); it must be \(6, 6\): queries by references"):
        NCA("expected", relation=LabelDistance(lambda a, b: a - b[0]))(X, Y)


def test_predict_checks_its_embeddings_and_leaves_sizes_to_your_own_distance() -> None:
    objective = NearestClassMean(torch.eye(3, 4))
    with pytest.raises(ValueError, match="embeddings have 3 dimensions, but this objective was built for 4"):
        objective.predict(X[:, :3])
    with pytest.raises(TypeError, match="embeddings must be a float tensor"):
        objective.predict(np.ones((2, 4)))
    assert NearestClassMean(torch.eye(3), lambda f, a: torch.cdist(f[:, :3], a)).predict(X).shape == (6,)


def test_references_on_another_device_are_an_error() -> None:
    with pytest.raises(ValueError, match="references are on meta and embeddings on cpu; move them to the same device"):
        NCA()(X, Y, ids=IDS, references=Points(X.to("meta"), Y, IDS))


def test_arguments_of_pytorch_metric_learning_are_told_what_to_write() -> None:
    z, y = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    for objective in (SupCon(), WeightedSum({"a": (1.0, SupCon())}), Matryoshka(SupCon(), (2, 3))):
        for name in ("ref_emb", "ref_labels"):
            with pytest.raises(
                TypeError, match=rf"no argument '{name}'; write ids=.*references=nearkin.Points\(ref_emb, ref_labels, nearkin"
            ):
                objective(z, y, **{name: z})
        with pytest.raises(TypeError, match="no argument 'indices_tuple'; choosing pairs is part of an objective"):
            objective(z, y, indices_tuple=(1, 2))
        with pytest.raises(TypeError, match="no third argument by position, tuple; choosing pairs"):
            objective(z, y, (y, y, y))
        with pytest.raises(TypeError, match="no argument 'weights'; it takes embeddings, labels, ids=, references= and reduction="):
            objective(z, y, weights=y)


def train(
    objective: Any, step: Callable[[], None], steps: int = value_checks.UNSTEPPED + 50, clear: Callable[[], None] | None = None
) -> None:
    z, y = torch.randn(6, 3, requires_grad=True), torch.arange(3).repeat(2)
    for _ in range(steps):
        if clear:
            clear()
        objective(z, y).backward()
        step()


def test_parameters_that_no_optimizer_moves_are_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_checks, "_told", set())
    with pytest.warns(
        UserWarning,
        match=rf"ArcFace was called {value_checks.UNSTEPPED} times.*no optimizer moves them: give it \[\*network.parameters\(\), \*objec",
    ) as found:
        train(ArcFace(3, 3), lambda: None)
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(ArcFace(3, 3), lambda: None)  # said once
        monkeypatch.setattr(value_checks, "_told", set())
        train(ArcFace(3, 3), lambda: None, steps=value_checks.UNSTEPPED - 1)
        train(SupCon(), lambda: None)  # it has none
        moved = ArcFace(3, 3)
        train(moved, torch.optim.SGD(moved.parameters(), 0.1).step)
        cleared = ArcFace(3, 3)
        optimizer = torch.optim.Adam(cleared.parameters(), 0.0)
        train(cleared, optimizer.step, clear=optimizer.zero_grad)
        past = ArcFace(3, 3)  # as older optimizers do
        train(past, lambda: past.references.vectors.data.add_(0.01))
        frozen = ArcFace(3, 3).requires_grad_(False)
        train(frozen, lambda: None)


def test_matryoshka_checks_shapes_before_it_cuts_them() -> None:
    objective, x, y, ids = Matryoshka(SupCon(), (2, 3)), torch.randn(6, 3), torch.arange(6) % 2, torch.arange(6)
    with pytest.raises(ValueError, match=r"embeddings has shape \(3,\); it must be \(n, d\)"):
        objective(x[0], y)
    with pytest.raises(TypeError, match="references must be Points"):
        objective(x, y, ids=ids, references=x)
    with pytest.raises(ValueError, match="go beyond the 2 columns of references.embeddings"):
        objective(x, y, ids=ids, references=Points(x[:, :2], y, ids))
    torch.testing.assert_close(objective(x, y, ids=ids, references=(x, y, ids)), objective(x, y, ids=ids))
