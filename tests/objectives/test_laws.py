"""Laws that every objective keeps, over one table of all of them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from nearkin.compose.points import Points, fresh_ids
from nearkin.compose.references.anchors import simplex
from nearkin.compose.relation import LabelDistance, LabelOverlap
from nearkin.compose.routes import MANY_ON_CPU, MANY_ON_CUDA, MANY_PAIRS, plan, streams
from nearkin.objectives import (
    NCA,
    AdaCos,
    Angular,
    ArcFace,
    CenterLoss,
    CenterPull,
    Circle,
    Contrastive,
    CosFace,
    FastAP,
    Hinge,
    Histogram,
    InstanceDiscrimination,
    LargeMarginSoftmax,
    LiftedStructure,
    MultiSimilarity,
    NCARegression,
    NearestClassMean,
    NeighborhoodDiscovery,
    NeighborhoodObjective,
    NormalizedSoftmax,
    NPair,
    NTXent,
    PrecisionAtK,
    ProxyAnchor,
    ProxyNCA,
    RankedList,
    RecallAtK,
    SmoothAP,
    Softmax,
    SupCon,
    Triplet,
    TupletMargin,
    WeightedSum,
)

C, D, BANK = 4, 5, 14
CLASSES = torch.tensor([2, 0, 1, 0, 3, 1, 2, 0, 2, 1])  # class 3 stands alone
IDS = torch.tensor([3, 1, 12, 7, 0, 5, 9, 2, 13, 11])
SETS = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 1, 0], [1, 0, 1], [1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 1, 1], [0, 1, 1]])
SINGLETON = CLASSES == 3


@dataclass(frozen=True)
class Case:
    """An objective, what it reads, and which motions of the plane leave it alone."""

    name: str
    make: Callable[[], nn.Module]
    invariant: str = ""  # of "translation" and "scale"; rotation holds for all
    labels: str = "classes"
    moves: tuple[str, ...] = ()  # state that update() changes
    skips: bool = True  # whether the only sample of a class is skipped
    draws: bool = False

    def call(self, objective: nn.Module, x: Tensor, rows: Tensor | None = None, **options: Any) -> Tensor:
        rows = torch.arange(len(x)) if rows is None else rows
        return objective(x, self.target(rows), ids=IDS[rows], **options)

    def target(self, rows: Tensor) -> Tensor | None:
        numbers = torch.linspace(-1, 2, 20, dtype=torch.float64).reshape(10, 2).sin()
        return {"classes": CLASSES, "sets": SETS, "numbers": numbers}[self.labels][rows] if self.labels != "ids" else None


def discovery(quantifier: Literal["any", "each"] = "any") -> nn.Module:
    objective = NeighborhoodDiscovery(BANK, D, k=2, quantifier=quantifier)
    objective.trust(torch.stack([(torch.arange(BANK) + 1) % BANK, (torch.arange(BANK) + 5) % BANK], 1), torch.arange(BANK) % 3 > 0)
    return objective


def two() -> nn.Module:
    return WeightedSum({"npair": (1.0, NPair()), "angular": (2.0, Angular())})


CENTER = ("references.vectors",)
CASES = [
    Case("nca log", NCA, "translation"),
    Case("nca expected", lambda: NCA("expected"), "translation", skips=False),
    Case("nca cosine", lambda: NCA(temperature=0.1, metric="cosine"), "scale"),
    Case("nca sets log", lambda: NCA(relation=LabelOverlap()), "translation", labels="sets"),
    Case("nca sets expected", lambda: NCA("expected", relation=LabelOverlap()), "translation", labels="sets", skips=False),
    Case("ncar", NCARegression, "translation", labels="numbers", skips=False),
    Case("ncar cosine", lambda: NCARegression(0.2, "cosine"), "scale", labels="numbers", skips=False),
    Case("ncm euclidean", lambda: NearestClassMean(simplex(C, D)), "translation", skips=False),
    Case("ncm cosine", lambda: NearestClassMean(simplex(C, D), "cosine", scale=4.0), "scale", skips=False),
    Case(
        "ncm own metric",
        lambda: NearestClassMean(simplex(C, D), lambda f, a: torch.cdist(f, a).square()),
        "translation",
        skips=False,
    ),
    Case("softmax", lambda: Softmax(C, D), skips=False),
    Case("hinge", lambda: Hinge(C, D), skips=False),
    Case("hinge weston-watkins", lambda: Hinge(C, D, "weston-watkins"), skips=False),
    Case("hinge one-vs-rest", lambda: Hinge(C, D, "one-vs-rest"), skips=False),
    Case("proxy-nca published", lambda: ProxyNCA(C, D), "scale", skips=False),
    Case("proxy-nca softmax", lambda: ProxyNCA(C, D, "softmax"), "scale", skips=False),
    Case("normalized softmax", lambda: NormalizedSoftmax(C, D), "scale", skips=False),
    Case("l-softmax", lambda: LargeMarginSoftmax(C, D, base=2.0), moves=("step",), skips=False),
    Case("contrastive", Contrastive, "scale", skips=False),
    Case("contrastive raw", lambda: Contrastive(normalize=False), "translation", skips=False),
    Case("triplet uniform", lambda: Triplet("uniform"), "scale"),
    Case("triplet hard", lambda: Triplet("hard", metric="squared_euclidean"), "translation"),
    Case("triplet semi-hard", lambda: Triplet("semi-hard"), "scale"),
    Case("triplet misplaced", lambda: Triplet("misplaced", k=2), "scale"),
    Case("triplet distance-weighted", lambda: Triplet("distance-weighted", dimension=D), "scale", draws=True),
    Case("n-pair", NPair),
    Case("lifted", LiftedStructure, "translation"),
    Case("angular", lambda: Angular(40.0), "scale"),
    Case("precision@k", lambda: PrecisionAtK(2), "scale"),
    Case("precision@k released", lambda: PrecisionAtK(3, 0.2, True, 0.1, True), "scale"),
    Case("instances", lambda: InstanceDiscrimination(BANK, D), "scale", "ids", moves=CENTER, skips=False),
    Case("discovery", discovery, "scale", "ids", moves=CENTER, skips=False),
    Case("discovery of each", lambda: discovery("each"), "scale", "ids", moves=CENTER, skips=False),
    Case("center pull", lambda: CenterPull(C, D), "translation", moves=CENTER, skips=False),
    Case("center loss", lambda: CenterLoss(C, D, 0.5), moves=("terms.center.references.vectors",), skips=False),
    Case("n-pair + angular", two),
    Case("supcon", SupCon, "scale"),
    Case("supcon inside", lambda: SupCon(placement="inside"), "scale"),
    Case("nt-xent", NTXent, "scale"),
    Case("arcface", lambda: ArcFace(C, D, temperature=0.1), "scale", skips=False),
    Case("cosface", lambda: CosFace(C, D, temperature=0.1), "scale", skips=False),
    Case("proxy-anchor", lambda: ProxyAnchor(C, D), "scale", skips=False),
    Case("adacos", lambda: AdaCos(C, D), "scale", moves=("scale",), skips=False),
    Case("multi-similarity", MultiSimilarity, "scale", skips=False),
    Case("circle", lambda: Circle(temperature=0.1), "scale"),
    Case("tuplet margin", lambda: TupletMargin(temperature=0.1), "scale"),
    Case("ranked list", RankedList, "scale", skips=False),
    Case("histogram", Histogram, "scale", skips=False),
    Case("fast-ap", FastAP, "scale"),
    Case("smooth-ap", lambda: SmoothAP(0.1), "scale"),
    Case("recall@k", lambda: RecallAtK(temperature=0.1), "scale"),
]
STILL = [c for c in CASES if not c.draws]
STREAMED = [c for c in CASES if isinstance(o := c.make(), NeighborhoodObjective) and streams(o.parts)]
SINGLE = [c for c in CASES if c.name != "center loss" and "+" not in c.name]


def table(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[c.name for c in cases])


def built(case: Case, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    objective = case.make().double()
    for name, state in objective.state_dict().items():
        if name.endswith("vectors") and not state.any():  # centers start at the origin
            state.copy_(torch.randn_like(state))
    return objective


def batch(n: int = 10, seed: int = 1) -> Tensor:
    return torch.randn(n, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def carry(objective: nn.Module, motion: Callable[[Tensor], Tensor]) -> None:
    """Move the objective's own vectors along with the embeddings; a bias, the last coordinate, stays."""
    with torch.no_grad():
        for name, state in objective.state_dict().items():
            if name.endswith("vectors"):
                state[:, :D] = motion(state[:, :D].clone())


@table(STILL)
def test_a_permuted_batch_permutes_the_values(case: Case) -> None:
    objective, x = built(case), batch()
    order = torch.randperm(10, generator=torch.Generator().manual_seed(3))
    if "n-pair" in case.name:  # the second of a class is its answer: keep the order within classes
        order = torch.argsort(CLASSES, stable=True).roll(4)
    values = case.call(objective, x, reduction="none")
    torch.testing.assert_close(case.call(objective, x[order], order, reduction="none"), values[order])
    torch.testing.assert_close(case.call(objective, x[order], order), case.call(objective, x))


@table(STILL)
def test_rotation_changes_nothing(case: Case) -> None:
    objective, x = built(case), batch()
    turn = torch.linalg.qr(batch(D, seed=5)).Q
    before = case.call(objective, x, reduction="none")
    carry(objective, lambda v: v @ turn)
    torch.testing.assert_close(case.call(objective, x @ turn, reduction="none"), before)


@table([c for c in STILL if c.invariant == "translation"])
def test_translation_changes_nothing(case: Case) -> None:
    objective, x, shift = built(case), batch(), 50 * batch(1, seed=6)
    before = case.call(objective, x, reduction="none")
    carry(objective, lambda v: v + shift)
    torch.testing.assert_close(case.call(objective, x + shift, reduction="none"), before, rtol=1e-6, atol=1e-8)


@table([c for c in STILL if c.invariant == "scale"])
def test_the_length_of_an_embedding_changes_nothing(case: Case) -> None:
    objective, x = built(case), batch()
    lengths = torch.logspace(-3, 3, 10, dtype=torch.float64)[:, None]
    torch.testing.assert_close(case.call(objective, x * lengths, reduction="none"), case.call(objective, x, reduction="none"))


@table([c for c in STILL if c in SINGLE])
def test_the_reductions_agree(case: Case) -> None:
    objective, x = built(case), batch()
    values = case.call(objective, x, reduction="none")
    weight = objective.last._weight
    assert values.shape == weight.shape == (10,)
    torch.testing.assert_close(case.call(objective, x, reduction="sum"), (weight * values).sum())
    torch.testing.assert_close(case.call(objective, x), (weight * values).sum() / weight.sum())


@table([c for c in STILL if c in SINGLE])
def test_skipped_queries_are_counted_and_have_value_0(case: Case) -> None:
    objective, x = built(case), batch()
    values = case.call(objective, x, reduction="none")
    last = objective.last
    assert last.queries == 10 and last.valid + last.skipped == 10 and last.skipped == int(last.skipped_mask.sum())
    assert values[last.skipped_mask].eq(0).all() and last.active > 0 and last.clamped == 0
    assert bool(last.skipped_mask[SINGLETON]) == (case.skips and case.labels == "classes")
    assert repr(last) == f"Last(queries=10, valid={last.valid}, skipped={last.skipped}, active={last.active}, clamped=0)"


@table(STILL)
def test_state_travels_in_the_state_dict(case: Case) -> None:
    objective, x = built(case), batch()
    for _ in range(2):
        objective.update(x, case.target(torch.arange(10)), ids=IDS)
    other = built(case, seed=9)
    changed = any(not torch.equal(a, b) for a, b in zip(objective.state_dict().values(), other.state_dict().values(), strict=True))
    assert changed == bool(case.moves or list(objective.parameters()))
    other.load_state_dict(objective.state_dict())
    assert torch.equal(case.call(other, x), case.call(objective, x))


@table(STILL)
def test_a_deep_copy_is_equal_and_apart(case: Case) -> None:
    objective, x = built(case), batch()
    before = case.call(objective, x.requires_grad_())
    other = copy.deepcopy(objective)
    assert torch.equal(case.call(other, x), before)
    with torch.no_grad():
        for state in other.state_dict().values():
            state.zero_()
    assert torch.equal(case.call(objective, x), before)


@table(CASES)
def test_float32_is_float64_rounded(case: Case) -> None:
    objective, x = built(case), batch().float()
    torch.manual_seed(2)
    wide = case.call(objective, x.double())
    torch.manual_seed(2)
    narrow = case.call(objective.float(), x)
    assert narrow.dtype == torch.float32 and wide.dtype == torch.float64
    torch.testing.assert_close(narrow.double(), wide, rtol=2e-5, atol=1e-6)


@table(CASES)
@pytest.mark.parametrize("cast", [lambda m: m.double(), lambda m: m.to(torch.float64)], ids=["double", "to"])
def test_an_objective_moves_to_float64(case: Case, cast: Callable[[nn.Module], nn.Module]) -> None:
    objective = cast(case.make())
    assert all(t.dtype == torch.float64 for t in objective.state_dict().values() if t.is_floating_point())
    assert case.call(objective, batch()).dtype == torch.float64
    assert case.call(objective, batch().float()).dtype == torch.float32


@table(CASES)
def test_two_points_are_enough(case: Case) -> None:
    objective, x = built(case), batch(2).requires_grad_()
    loss = case.call(objective, x)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(x.grad).all()


@table(CASES)
def test_gradients_are_finite_where_points_meet_and_at_the_origin(case: Case) -> None:
    objective, x = built(case).float(), batch().float()
    x[1] = x[3] = x[0]  # a right and a wrong one at distance zero
    x[5] = 0
    x.requires_grad_()
    loss = case.call(objective, x)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(x.grad).all() and x.grad.any()
    assert all(torch.isfinite(p.grad).all() and p.grad.any() for p in objective.parameters())


@table(CASES)
def test_update_moves_only_what_it_should(case: Case) -> None:
    objective, x, rows = built(case), batch()[:6], torch.arange(6)
    before = copy.deepcopy(objective.state_dict())
    objective.update(x, case.target(rows), ids=IDS[rows])
    changed = {name for name, state in objective.state_dict().items() if not torch.equal(state, before[name])}
    assert changed == set(case.moves)
    touched = set((IDS if case.labels == "ids" else CLASSES)[rows].tolist())
    for name in changed - {"step", "scale"}:
        moved = (objective.state_dict()[name] != before[name]).any(1).nonzero()[:, 0].tolist()
        assert set(moved) == touched


@table(STREAMED)
@pytest.mark.parametrize("references", ["own", "clone", "others"])
def test_streaming_equals_the_matrix(case: Case, references: str) -> None:
    rows = torch.tensor([4, 0, 1, 2, 2, 3, 5, 6, 7, 9, 2])  # sample 2 stands in the batch three times
    outcomes = []
    for engine in ("dense", "torch"):
        objective, x = built(case), batch()[rows].requires_grad_()
        objective.engine = engine
        others = {
            "own": None,
            "clone": Points(x.flip(0), None if case.labels == "ids" else case.target(rows.flip(0)), IDS[rows.flip(0)]),
            "others": Points(batch(11, seed=8), None if case.labels == "ids" else case.target(rows), fresh_ids(11)),
        }[references]
        values = case.call(objective, x, rows, references=others, reduction="none")
        last = objective.last
        case.call(objective, x, rows, references=others).backward()
        outcomes.append(([values, x.grad, *(p.grad for p in objective.parameters())], repr(last), last.skipped_mask.tolist()))
    (dense, counted, skipped_mask), (streamed, *rest) = outcomes
    assert rest == [counted, skipped_mask]
    for one, other in zip(streamed, dense, strict=True):
        torch.testing.assert_close(one, other)


def test_streaming_begins_with_many_pairs() -> None:
    x = batch()
    for many, device in ((MANY_ON_CUDA, "cuda"), (MANY_ON_CPU, "cpu"), (MANY_PAIRS, "mps")):
        assert plan(NCA().parts, many, 1, device) == "streamed" and plan(NCA().parts, many - 1, 1, device) == "dense"
        assert plan(Triplet().parts, many, 1, device) == "dense" and plan(NCA().parts, many, 1, device, engine="dense") == "dense"
        assert plan(NCA().parts, 1, 1, device, engine="torch") == "streamed"
    assert plan(NTXent().parts, MANY_PAIRS, 1, "cuda") == "streamed" and plan(NTXent().parts, MANY_PAIRS - 1, 1, "cuda") == "dense"
    assert plan(NCA().parts, MANY_ON_CPU, 1, "cpu", d=1024) == "dense" == plan(NTXent().parts, MANY_ON_CPU, 1, "cpu", d=64)
    assert plan(NCA().parts, 3 * MANY_ON_CPU, 1, "cpu", d=1024) == "streamed" == plan(NTXent().parts, 8 * MANY_ON_CPU, 1, "cpu", d=64)
    torch.testing.assert_close(NCA(engine="torch")(x, CLASSES), NCA()(x, CLASSES))  # without ids: self is on the diagonal


def test_a_weighted_sum_is_the_sum_of_its_parts() -> None:
    x = batch()
    torch.manual_seed(4)
    parts = {"nca": (0.5, NCA()), "inner": (1.5, WeightedSum({"pull": (2.0, CenterPull(C, D)), "hinge": (3.0, Hinge(C, D))}))}
    both = WeightedSum(parts).double()
    nca, pull, hinge = parts["nca"][1], *parts["inner"][1].terms.values()
    for reduction in ("mean", "sum", "none"):
        apart = [weight * part(x, CLASSES, reduction=reduction) for weight, part in ((0.5, nca), (3.0, pull), (4.5, hinge))]
        torch.testing.assert_close(both(x, CLASSES, reduction=reduction), torch.stack(apart).sum(0))
    assert both.last["nca"].valid == 9 and both.last["inner"]["pull"].valid == 10
    both.update(x, CLASSES)
    assert pull.references.vectors.any(1).all(), "the centers of a sum within a sum move too"


def test_your_own_label_distance_and_multi_hot_sets_enter_through_the_relation() -> None:
    x, y, numbers = batch(), CLASSES, torch.linspace(0, 3, 10, dtype=torch.float64)
    unequal = LabelDistance(lambda a, b: (a != b.T).to(a.dtype))
    torch.testing.assert_close(NCA("expected", relation=unequal)(x, y), NCA("expected")(x, y))
    squares = LabelDistance(lambda a, b: (a - b.T).square())
    torch.testing.assert_close(NCA("expected", relation=squares)(x, numbers), NCARegression()(x, numbers))
    sevenfold = LabelDistance(lambda a, b: 7 * (a - b.T).square())
    torch.testing.assert_close(NCA("expected", relation=sevenfold)(x, numbers), 7 * NCARegression()(x, numbers))
    one_hot = torch.nn.functional.one_hot(y)
    for form in ("log", "expected"):
        torch.testing.assert_close(NCA(form, relation=LabelOverlap())(x, one_hot), NCA(form)(x, y))
        torch.testing.assert_close(NCA(form, relation=LabelOverlap())(x, one_hot.bool()), NCA(form)(x, y))


def test_clamped_counts_the_queries_whose_k_was_lowered() -> None:
    objective = PrecisionAtK(50)
    loss = objective(batch(), CLASSES)
    assert loss == pytest.approx(0, abs=1e-12) and objective.last.clamped == 9 == objective.last.valid


def test_active_counts_are_exact() -> None:
    x, y = torch.tensor([[0.0], [1.0], [10.0], [11.0]]), [0, 0, 1, 1]
    for objective, expected in (
        (NCA(), 4 * 3),  # candidates of the valid
        (LiftedStructure(), 0),
        (Contrastive(1.0, normalize=False), 4),  # the right pairs; no wrong one is inside the margin
        (Contrastive(9.5, normalize=False), 4 + 2),  # 1 to 10, both ways
        (Triplet("uniform", 1.0, "squared_euclidean"), 0),
        (Triplet("uniform", 90.0, "squared_euclidean"), 2),  # 1 + 90 exceeds 81, the pair (1, 10), and nothing else
        (CenterPull(2, 1), 4),
    ):
        objective(x, y)
        assert objective.last.active == expected, objective


def test_the_composition_names_its_four_choices() -> None:
    assert NCA().choices() == {
        "references": "InBatch",
        "affinity": "SquaredEuclidean(temperature=1.0)",
        "relation": "SameLabel(supervision='classes')",
        "criterion": "any_positive",
    }
    assert "penalty=SquaredLength" in repr(NPair()) and "relation" not in NeighborhoodDiscovery(4, 2).extra_repr()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Softmax(C, D),
        lambda: ProxyNCA(C, D),
        lambda: ProxyNCA(C, D, "softmax"),
        lambda: NormalizedSoftmax(C, D),
        lambda: NearestClassMean(simplex(C, D)),
        lambda: CenterPull(C, D),
    ],
)
def test_the_short_way_by_class_is_the_composition(make: Callable[[], NeighborhoodObjective]) -> None:
    objective = make().double()
    x = torch.randn(10, D, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True)
    objective.update(x, CLASSES)
    batch = Points(x, CLASSES, IDS)
    known = objective.references(batch)
    whole = objective.criterion(objective.affinity(x, known.embeddings), objective.relation(batch, known))
    short = objective.outcome(batch, None)
    torch.testing.assert_close(short[:3], whole[:3])
    torch.testing.assert_close(*(torch.autograd.grad(o.values.square().sum(), x)[0] for o in (short, whole)))
