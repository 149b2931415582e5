"""The losses of other papers equal their equations as literal loops: values, mean, sum and gradients, on batches with singletons, copies
and ties (tests/batches.py)."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn

from bench.catalog import kinds
from nearkin import objectives as nk
from nearkin.compose import Points
from tests import loss_oracles as more
from tests import oracles as o
from tests.batches import CLASSES, Batch, Rows, batches, compare, drawn


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[Batch], nn.Module]
    oracle: Callable[[Batch, Rows, Rows], o.Values]


def soft_triple(b: Batch, z: Rows, w: Rows) -> o.Values:
    spread = 0.3 * more.merging(w, b.d, 3)
    return [(v + spread, weight) for v, weight in more.margin_softmax(z, b.labels, w, "cosine", 0.05, 0.2, 3, 0.2)]


def face(kind: str, margin: float, count: int = 1) -> Callable[[Batch, Rows, Rows], o.Values]:
    return lambda b, z, w: more.margin_softmax(z, b.labels, w, kind, margin, 0.25, count)


SCALE = math.sqrt(2) * math.log(CLASSES - 1)
CASES = [
    Case("supcon", lambda _: nk.SupCon(0.3), lambda b, z, _: more.supcon(b.crowd(z), 0.3, False)),
    Case("supcon inside", lambda _: nk.SupCon(0.3, "inside"), lambda b, z, _: more.supcon(b.crowd(z), 0.3, True)),
    Case("nt-xent", lambda _: nk.NTXent(0.3), lambda b, z, _: more.each_against_negatives(b.crowd(z), 0.3)),
    Case("tuplet margin", lambda _: nk.TupletMargin(0.2, 0.3), lambda b, z, _: more.each_against_negatives(b.crowd(z), 0.3, 0.2)),
    Case("arcface", lambda b: nk.ArcFace(CLASSES, b.d, 0.4, 0.25), face("angle", 0.4)),
    Case("cosface", lambda b: nk.CosFace(CLASSES, b.d, 0.3, 0.25), face("cosine", 0.3)),
    Case("sub-center arcface", lambda b: nk.SubCenterArcFace(CLASSES, b.d, 2, 0.4, 0.25), face("angle", 0.4, 2)),
    Case("soft triple", lambda b: nk.SoftTriple(CLASSES, b.d, 3, 0.2, 0.2, 0.05, 0.3), soft_triple),
    Case(
        "adacos", lambda b: nk.AdaCos(CLASSES, b.d), lambda b, z, w: o.normalized_softmax(z, b.labels, w, 1 / (2**0.5 * 1.0986122886681098))
    ),
    Case(
        "sphereface",
        lambda b: nk.SphereFace(CLASSES, b.d, m=3, base=0.0, lambda_min=0.7),
        lambda b, z, w: more.sphereface(z, b.labels, w, 3, 0.7),
    ),
    Case(
        "multi-similarity",
        lambda _: nk.MultiSimilarity(2.0, 10.0, 0.5, 0.1),
        lambda b, z, _: more.multi_similarity(b.crowd(z), 2.0, 10.0, 0.5, 0.1),
    ),
    Case(
        "multi-similarity of all pairs",
        lambda _: nk.MultiSimilarity(2.0, 10.0, 0.5, None),
        lambda b, z, _: more.multi_similarity(b.crowd(z), 2.0, 10.0, 0.5, None),
    ),
    Case("circle", lambda _: nk.Circle(0.3, 0.2), lambda b, z, _: more.circle(b.crowd(z), 0.3, 0.2)),
    Case("proxy-anchor", lambda b: nk.ProxyAnchor(CLASSES, b.d, 0.1, 0.2), lambda b, z, w: more.proxy_anchor(z, b.labels, w, 0.1, 0.2)),
    Case("fast-ap", lambda _: nk.FastAP(6), lambda b, z, _: more.fast_ap(b.crowd(z), 6)),
    Case("smooth-ap", lambda _: nk.SmoothAP(0.1), lambda b, z, _: more.smooth_ap(b.crowd(z), 0.1)),
    Case("recall at k", lambda _: nk.RecallAtK((1, 2), 0.1, 0.5), lambda b, z, _: more.recall_at_k(b.crowd(z), (1, 2), 0.1, 0.5)),
    Case(
        "ranked list",
        lambda _: nk.RankedList(0.4, 1.2, 3.0, 0.5, 0.4),
        lambda b, z, _: more.ranked_list(b.crowd(z), 0.4, 1.2, 3.0, 0.5, 0.4),
    ),
    Case("margin", lambda _: nk.MarginLoss(0.3, 1.0, learn_beta=False), lambda b, z, _: more.margin_loss(b.crowd(z), 0.3, 1.0)),
    Case("histogram", lambda _: nk.Histogram(7), lambda b, z, _: more.histogram(b.crowd(z), 7)),
    Case(
        "snr contrastive", lambda _: nk.SignalToNoiseContrastive(2.0), lambda b, z, _: more.balanced(b.crowd(z), more.noise_to_signal, 2.0)
    ),
]


def wide(b: Batch, columns: int) -> Tensor:
    """(CLASSES, columns) class vectors, several of a class in a row."""
    parts = [b.anchors(), b.anchors().flip(0) + 0.2, b.anchors() * 0.5 - 0.4]
    return torch.cat(parts, 1)[:, :columns].clone()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_loss_equals_its_equation(case: Case) -> None:
    smooth = []

    @settings(max_examples=25)
    @given(batches())
    def run(b: Batch) -> None:
        objective = case.build(b).double()
        own = list(objective.parameters())
        for vectors in own:
            vectors.data = wide(b, vectors.shape[1])
        if isinstance(objective, nk.AdaCos):
            objective.scale.fill_(SCALE)
        z = b.z.clone().requires_grad_()
        ids = None if b.samples == list(range(len(b.samples))) else b.samples
        smooth.append(
            compare(
                lambda reduction: objective(z, b.labels, ids=ids, reduction=reduction),
                [z, *own],
                lambda rows: case.oracle(b, rows[0], rows[-1]),
            )
        )

    run()
    assert sum(smooth) >= 3, "too few gradients were compared"


def pair_rows(n: int = 6, d: int = 3) -> tuple[Tensor, Tensor]:
    return drawn(n, d, 1), drawn(n, d, 2)


@pytest.mark.parametrize("name", ["vicreg", "barlow twins"])
def test_two_views_equal_their_equation_in_any_order(name: str) -> None:
    a, b = pair_rows()
    objective = nk.VICReg(2.0, 3.0, 0.5, 1e-3) if name == "vicreg" else nk.BarlowTwins(0.1, 1e-3)
    ids = torch.tensor([5, 3, 9, 0, 1, 4])
    z = torch.cat([a, b]).requires_grad_()
    order = torch.tensor([3, 0, 9, 5, 11, 1, 7, 6, 2, 4, 8, 10])  # of each sample, the first view first
    found = objective(z[order], ids=torch.cat([ids, ids])[order])
    copy = z.detach().clone().requires_grad_()
    first, second = o.scalars(copy[:6]), o.scalars(copy[6:])
    expected = more.vicreg(first, second, 2.0, 3.0, 0.5, 1e-3) if name == "vicreg" else more.barlow_twins(first, second, 0.1, 1e-3)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, z)[0], torch.autograd.grad(expected, copy)[0])
    with pytest.raises(ValueError, match="ids must occur exactly twice each"):
        objective(z, ids=torch.arange(12))
    with pytest.raises(ValueError, match="ids are missing: the two views"):
        objective(z)


@pytest.mark.parametrize("taken", [0, 4, 20])
def test_neighbor_targets_equal_their_equation_in_any_order(taken: int) -> None:
    """At first a sample is its own target, then in part, and in the end its neighbors alone are; the teacher's rows are constants."""
    a, b = pair_rows()
    torch.manual_seed(0)
    objective = nk.NeighborTargets(size=10, dimension=3, steps=20, until=0.5, temperature=0.3, sharp=0.2).double()
    objective.taken.fill_(taken)
    ids = torch.tensor([5, 3, 9, 0, 1, 4])
    z = torch.cat([a, b]).requires_grad_()
    order = torch.tensor([3, 0, 9, 5, 11, 1, 7, 6, 2, 4, 8, 10])
    found = objective(z[order], ids=torch.cat([ids, ids])[order])
    copy = z.detach().clone().requires_grad_()
    student, teacher, bank = o.scalars(copy[:6]), o.scalars(copy[6:].detach()), o.scalars(objective.bank.vectors)
    own = max(0.0, 1 - taken / 10)
    expected = more.neighbor_targets(student, teacher, bank, ids.tolist(), own, 0.3, 0.2)
    torch.testing.assert_close(found, expected)
    gradient = torch.autograd.grad(found, z)[0]
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, copy)[0])
    assert bool((gradient[6:] == 0).all())
    one_by_one = objective(z[order], ids=torch.cat([ids, ids])[order], reduction="none")
    torch.testing.assert_close(one_by_one.mean(), found)
    rows = dict(zip(order.tolist(), one_by_one.tolist(), strict=True))
    assert all(rows[i] == rows[i + 6] for i in range(6))  # both views of a sample have its value


def test_update_puts_the_views_of_the_teacher_into_the_bank_and_counts_the_step() -> None:
    a, b = pair_rows()
    objective = nk.NeighborTargets(size=10, dimension=3, steps=20).double()
    before, ids = objective.bank.vectors.clone(), torch.tensor([5, 3, 9, 0, 1, 4])
    objective.update(torch.cat([a, b]), ids=torch.cat([ids, ids]))
    torch.testing.assert_close(objective.bank.vectors[ids], torch.nn.functional.normalize(b, dim=1))
    others = torch.tensor([2, 6, 7, 8])
    assert torch.equal(objective.bank.vectors[others], before[others])
    assert float(objective.own) == pytest.approx(1 - 1 / 6)
    with pytest.raises(ValueError, match=r"size \(1\).*one sample has no neighbors"):
        nk.NeighborTargets(size=1, dimension=3, steps=20)
    with pytest.raises(ValueError, match="until"):
        nk.NeighborTargets(size=5, dimension=3, steps=20, until=-0.1)


def test_a_learned_temperature_and_a_learned_beta_have_their_gradients() -> None:
    a, b = pair_rows()
    ids, texts = torch.tensor([0, 1, 2, 3, 4, 4]), torch.tensor([4, 3, 2, 1, 0, 9])
    objective = nk.InfoNCE(0.5, learn_temperature=True).double()
    objective.log_scale.data.fill_(math.log(2))

    def equation(rows: list[Rows]) -> o.Values:
        return more.info_nce(o.Crowd(rows[0], None, ids.tolist()), o.Crowd(rows[1], None, texts.tolist()), 0.5)

    assert compare(
        lambda reduction: objective(a, ids=ids, references=Points(b, None, texts), reduction=reduction),
        [a.requires_grad_(), b.requires_grad_()],
        equation,
    )
    loss = objective(a, ids=ids, references=Points(b, None, texts))
    (slope,) = torch.autograd.grad(loss, objective.parameters())
    shifted = [nk.InfoNCE(0.5 / torch.tensor(h, dtype=torch.float64).exp().item()).double() for h in (1e-4, -1e-4)]
    up, down = (x(a, ids=ids, references=Points(b, None, texts)) for x in shifted)
    torch.testing.assert_close(slope, (up - down) / 2e-4, rtol=1e-6, atol=1e-8)
    assert objective.deployment() == ("cosine", pytest.approx(0.5))
    z, y = drawn(), torch.arange(4).repeat(3)
    margin = nk.MarginLoss(0.3, 1.1, nu=0.2).double()
    margin.criterion.beta.data.fill_(1.1)
    (slope,) = torch.autograd.grad(margin(z, y), margin.parameters())
    shifts = []
    for h in (1e-6, -1e-6):
        margin.criterion.beta.data.fill_(1.1 + h)
        shifts.append(margin(z, y).detach())
    torch.testing.assert_close(slope, (shifts[0] - shifts[1]) / 2e-6, rtol=1e-5, atol=1e-7)


def test_views_of_a_sample_are_positives_where_asked() -> None:
    z, ids = drawn(8, 3), torch.arange(4).repeat(2)
    by_label = nk.NTXent(0.3)(z, ids)
    torch.testing.assert_close(nk.NTXent(0.3, positives="views")(z, ids=ids), by_label)
    torch.testing.assert_close(nk.SupCon(0.3)(z, ids), by_label)  # one positive each: the two losses agree
    labels = torch.tensor([0, 0, 1, 1]).repeat(2)
    torch.testing.assert_close(nk.SupCon(0.3, views=True)(z, labels, ids=ids), nk.SupCon(0.3)(z, labels))
    assert nk.SupCon(0.3)(z, labels, ids=ids) != nk.SupCon(0.3)(z, labels)


def test_the_scale_of_adacos_follows_its_equation() -> None:
    torch.manual_seed(0)
    objective = nk.AdaCos(5, 3).double()
    z, y = drawn(7), torch.tensor([0, 1, 2, 3, 4, 0, 1])
    s, p = float(objective.scale), torch.nn.functional.normalize(objective.references.vectors.detach())
    cos = torch.nn.functional.normalize(z) @ p.T
    b = sum(sum((s * cos[i, c]).exp() for c in range(5) if c != y[i]) for i in range(7)) / 7
    angle = min(torch.pi / 4, float(sorted(torch.acos(cos[i, y[i]]) for i in range(7))[3]))
    objective.update(z, y)
    torch.testing.assert_close(objective.scale, b.log() / torch.cos(torch.tensor(angle, dtype=torch.float64)))
    fixed = nk.AdaCos(5, 3, "fixed")
    before = fixed.scale.clone()
    fixed.update(z, y)
    assert torch.equal(before, fixed.scale)


def test_blocks_of_smooth_ranks_change_nothing(monkeypatch: Any) -> None:
    z, y = drawn().requires_grad_(), torch.arange(4).repeat(3)
    for objective in (nk.SmoothAP(0.1), nk.RecallAtK((1, 2), 0.1)):
        whole = objective(z, y)
        slope = torch.autograd.grad(whole, z)[0]
        monkeypatch.setattr("nearkin.compose.ranks.AT_ONCE", 300)
        torch.testing.assert_close(objective(z, y), whole)
        torch.testing.assert_close(torch.autograd.grad(objective(z, y), z)[0], slope)
        monkeypatch.undo()


@pytest.mark.parametrize("squared", [False, True])
def test_supcon_streams(squared: bool) -> None:
    """By id: sample 2 stands in the batch three times; a class of one; references of their own."""
    from nearkin.compose import InBatch, SameLabel, SquaredEuclidean, cosine, mean_positive

    z, y = drawn(11, 3).requires_grad_(), torch.tensor([3, 0, 1, 0, 0, 2, 1, 1, 2, 0, 1])
    ids = torch.tensor([9, 4, 2, 5, 2, 0, 2, 7, 8, 1, 6])
    others = Points(drawn(9, 3, 4), torch.tensor([0, 1, 2, 0, 1, 2, 9, 9, 0]), torch.tensor([20, 2, 22, 4, 24, 25, 26, 27, 28]))
    affinity = SquaredEuclidean(0.7) if squared else cosine(0.3)
    for references in (None, others):
        found = []
        for engine in ("dense", "torch", "numba"):
            objective = nk.NeighborhoodObjective(InBatch(), affinity, SameLabel(), mean_positive, engine=engine)
            values = objective(z, y, ids=ids, references=references, reduction="none")
            slope = torch.autograd.grad(objective(z, y, ids=ids, references=references), z)[0]
            found.append((values, slope, repr(objective.last)))
        for values, slope, last in found[1:]:
            torch.testing.assert_close(values, found[0][0])
            torch.testing.assert_close(slope, found[0][1])
            assert last == found[0][2]
    torch.testing.assert_close(nk.SupCon(engine="torch")(z, y), nk.SupCon(engine="dense")(z, y))


def test_matryoshka_is_the_sum_over_prefixes() -> None:
    z, y, ids = drawn(12, 6), torch.arange(4).repeat(3), torch.arange(12)
    objective = nk.Matryoshka(nk.NCA(), (2, 6), (0.5, 2.0))
    torch.testing.assert_close(objective(z, y), 0.5 * nk.NCA()(z[:, :2], y) + 2.0 * nk.NCA()(z, y))
    others = Points(drawn(5, 6, 3), torch.arange(5) % 4, torch.arange(20, 25))
    inner = 0.5 * nk.NCA()(z[:, :2], y, ids=ids, references=others._replace(embeddings=others.embeddings[:, :2]))
    torch.testing.assert_close(objective(z, y, ids=ids, references=others), inner + 2.0 * nk.NCA()(z, y, ids=ids, references=others))
    banks = nk.Matryoshka(lambda m: nk.InstanceDiscrimination(12, m), (2, 6)).double()
    banks.update(z, ids=ids)
    assert [tuple(x.shape) for x in banks.state_dict().values()] == [(12, 2), (12, 6)] and banks.deployment().metric == "cosine"
    with pytest.raises(ValueError, match=r"objective CosFace holds vectors or state for one dimension; pass a function"):
        nk.Matryoshka(nk.CosFace(4, 6), (2, 6))
    with pytest.raises(ValueError, match=r"dimensions \(\(2, 6\)\) go beyond the 4 columns"):
        objective(z[:, :4], y)
    with pytest.raises(ValueError, match=r"dimensions \(\(2, 2\)\) must be different lengths"):
        nk.Matryoshka(nk.NCA(), (2, 2))
    with pytest.raises(ValueError, match="weights has 1 entries for 2 dimensions"):
        nk.Matryoshka(nk.NCA(), (2, 6), (1.0,))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: nk.ArcFace(3, 4, margin=28.6), r"margin \(28.6\) must be an angle in radians.*28.6 degrees are 0.5"),
        (lambda: nk.CosFace(3, 4, margin=2.0), r"margin \(2.0\) must be between 0 and 1: it is taken off a cosine"),
        (lambda: nk.AdaCos(2, 4), r"num_classes \(2\) must be a whole number of at least 3"),
        (lambda: nk.SupCon(placement="middle"), "placement 'middle' is unknown; choose one of outside, inside"),
        (lambda: nk.RecallAtK(()), "ks is empty; pass at least one k"),
        (lambda: nk.SoftTriple(3, 4, merge=-1.0), r"merge \(-1.0\) must be at least 0"),
        (lambda: nk.InfoNCE()(torch.eye(3), ids=[0, 1, 2]), "InfoNCE compares two sides: pass the other one as references="),
        (lambda: nk.NTXent(positives="views")(torch.eye(3)), "ids are missing: positives='views' knows the views of a sample"),
    ],
)
def test_wrong_arguments_name_the_fix(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


ORACLES = ("test_oracle", "test_loss_oracles", "test_direct_regression", "test_discovery_equations", "test_pseudo_labels")


def test_every_objective_has_an_oracle() -> None:
    """An objective that is added must be compared with its equation in one of these files."""
    text = "".join(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in ORACLES)
    built = set(re.findall(r"\b([A-Z]\w+)\(", text))
    assert not (kinds().keys() | {"InfoNCE"}) - built
