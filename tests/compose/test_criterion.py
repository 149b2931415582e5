"""What it costs: every criterion against its definition in loops, over relations with holes, ties and graded costs.

Objectives only meet the relations they build; here any row may lack right ones, wrong ones or candidates altogether.
"""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from nearkin.compose.criterion import (
    BestK,
    Criterion,
    OneVersusRest,
    Pairs,
    any_positive,
    attraction,
    count,
    each_positive,
    expected_cost,
    misplaced,
    one_answer,
    own_column,
    right_and_wrong,
)
from nearkin.compose.outcome import Outcome, reduce
from nearkin.compose.points import Points, filled
from nearkin.compose.references import OnePerClass
from nearkin.compose.references.in_batch import answered
from nearkin.compose.relation import Related, SameLabel
from nearkin.compose.triplets import Triplets

Row = list[tuple[float, float, bool]]  # affinity, cost, candidate
Values = tuple[float, float, int]  # value, weight, active
NOTHING: Values = (0.0, 0.0, 0)


def lse(values: Sequence[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(v - top) for v in values))


def split(row: Row) -> tuple[list[float], list[float]]:
    return [s for s, c, may in row if may and c == 0], [s for s, c, may in row if may and c > 0]


def expected_loop(row: Row) -> Values:
    chosen = [(s, c) for s, c, may in row if may]
    if not chosen:
        return NOTHING
    total = lse([s for s, _ in chosen])
    return sum(math.exp(s - total) * c for s, c in chosen), 1, len(chosen)


def any_loop(row: Row) -> Values:
    chosen = [s for s, _, may in row if may]
    right = [s + math.log(1 - c) for s, c, _ in row if c < 1]
    return (lse(chosen) - lse(right), 1, len(chosen)) if chosen and right else NOTHING


def each_loop(row: Row) -> Values:
    right, wrong = split(row)
    if not right or not wrong:
        return NOTHING
    return sum(math.log1p(sum(math.exp(w - r) for w in wrong)) for r in right) / len(right), 1, len(right)


def attraction_loop(row: Row) -> Values:
    right, _ = split(row)
    return (-sum(right) / len(right), 1, len(right)) if right else NOTHING


def pairs_loop(row: Row) -> Values:
    right, wrong = split(row)
    n = len(right) + len(wrong)
    costs = [s**2 for s in right] + [max(0.0, 1.5 + s) ** 2 for s in wrong]
    return sum(costs) / max(n, 1), n, sum(cost > 0 for cost in costs)


def one_versus_rest_loop(row: Row) -> Values:
    right, wrong = split(row)
    costs = [max(0.0, 0.7 - s) for s in right] + [max(0.0, 0.7 + s) for s in wrong]
    return sum(costs), float(bool(costs)), sum(c > 0 for c in costs)


def helped(row: Row, margin: float) -> tuple[list[float], list[float]]:
    right = sorted((s for s, c, may in row if may and c == 0), reverse=True)
    return right, sorted((s + margin * c for s, c, may in row if may and c > 0), reverse=True)


def best_k_loop(row: Row) -> Values:
    right, wrong = helped(row, 0.3)
    k = min(3, len(right) + len(wrong))
    best = min(k, len(right))
    nearest = sorted([(s, True) for s in right] + [(s, False) for s in wrong], reverse=True)[:k]
    if not right:
        return NOTHING
    mistakes = sum(not good for _, good in nearest) - (k - best)
    return sum(s for s, _ in nearest) - sum(right[:best]) - sum(wrong[: k - best]), 1, mistakes


def hinges(pairs: list[tuple[float, float]], margin: float) -> Values:
    costs = [max(0.0, w - r + margin) for r, w in pairs]
    return (sum(costs) / len(costs), 1, sum(c > 0 for c in costs)) if costs else NOTHING


def uniform_loop(row: Row) -> Values:
    right, wrong = split(row)
    return hinges([(r, w) for r in right for w in wrong], 0.5)


def hard_loop(row: Row) -> Values:
    right, wrong = split(row)
    return hinges([(min(right), max(wrong))] if right and wrong else [], 0.5)


def semi_hard_loop(row: Row) -> Values:
    right, wrong = split(row)
    inside = {r: [w for w in wrong if r - 0.5 < w < r] for r in right}
    return hinges([(r, max(inside[r]) if inside[r] else min(wrong)) for r in right] if wrong else [], 0.5)


def misplaced_loop(row: Row) -> Values:
    ranked = sorted([(s + 0.5 * c, s, c == 0) for s, c, may in row if may], reverse=True)
    k = min(3, len(ranked))
    best = min(k, sum(good for *_, good in ranked))
    inside, outside = ranked[:k], ranked[k:]
    missing = best - sum(good for *_, good in inside)
    out = [s for _, s, good in outside if good][:missing]
    taken = [s for _, s, good in inside if not good][k - best :]
    return hinges([(r, w) for r in out for w in taken], 0.5)


CRITERIA: dict[str, tuple[Criterion, Callable[[Row], Values]]] = {
    "expected": (expected_cost, expected_loop),
    "any": (any_positive, any_loop),
    "each": (each_positive, each_loop),
    "attraction": (attraction, attraction_loop),
    "pairs": (Pairs(1.5), pairs_loop),
    "one-versus-rest": (OneVersusRest(0.7), one_versus_rest_loop),
    "best-k": (BestK(3, 0.3), best_k_loop),
    "uniform": (Triplets("uniform", 0.5), uniform_loop),
    "hard": (Triplets("hard", 0.5), hard_loop),
    "semi-hard": (Triplets("semi-hard", 0.5), semi_hard_loop),
    "misplaced": (Triplets("misplaced", 0.5, k=3), misplaced_loop),
}
named = pytest.mark.parametrize("name", CRITERIA)


def drawn(seed: int, n: int = 12, m: int = 7) -> tuple[Tensor, Related]:
    g = torch.Generator().manual_seed(seed)
    near = torch.randn(n, m, dtype=torch.float64, generator=g)
    cost = torch.tensor([0.0, 1.0, 1.0, 0.5], dtype=torch.float64)[torch.randint(4, (n, m), generator=g)]
    candidate = torch.rand(n, m, generator=g) < torch.linspace(0, 1.2, n)[:, None]  # from none to all
    cost[-1], cost[-2], cost[-3, 1:], cost[-3, 0] = 0, 1, 1, 0  # nothing wrong, nothing right, one right
    return near, Related(cost, candidate)


def loop(near: Tensor, relation: Related, by: Callable[[Row], Values]) -> tuple[Tensor, Tensor, int]:
    rows = [list(zip(*(t[i].tolist() for t in (near, *relation)), strict=True)) for i in range(len(near))]
    valid = [by(row) for row in rows]
    values, weights = (torch.tensor([p[i] for p in valid], dtype=torch.float64) for i in (0, 1))
    return values, weights, sum(p[2] for p in valid)


@named
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_criterion_equals_its_loop(name: str, seed: int) -> None:
    criterion, by = CRITERIA[name]
    near, relation = drawn(seed)
    if name == "any":  # what is right but no candidate still counts as right: Proxy-NCA's published form
        assert ((relation.cost < 1) & ~relation.candidate).any()
    outcome = criterion(near, relation)
    values, weights, active = loop(near, relation, by)
    torch.testing.assert_close(outcome.values, values)
    torch.testing.assert_close(outcome.weight, weights)
    assert int(outcome.active) == active
    assert outcome.values.dtype == outcome.weight.dtype == torch.float64


@named
def test_gradients_are_finite_and_reach_no_unpriced_row(name: str) -> None:
    near, relation = drawn(3)
    near.requires_grad_()
    outcome = CRITERIA[name][0](near, relation)
    reduce(outcome, "mean").backward()
    assert torch.isfinite(near.grad).all() and near.grad.any()
    assert not near.grad[outcome.weight == 0].any()


BROKEN = {name: criterion for name, (criterion, _) in CRITERIA.items()} | {"distance-weighted": Triplets("distance-weighted", dimension=4)}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_affinities_break_the_price(name: str) -> None:
    """A diverged network inside a recorded step, where nobody looks at its embeddings, must not read as a loss of 0."""
    near, relation = drawn(0)
    assert reduce(BROKEN[name](torch.full_like(near, torch.nan), relation), "mean").isnan()


@named
def test_nothing_to_choose_is_a_zero_with_a_graph(name: str) -> None:
    near = torch.randn(3, 4, requires_grad=True)
    outcome = CRITERIA[name][0](near, Related(torch.ones(3, 4), torch.zeros(3, 4, dtype=torch.bool)))
    assert not outcome.weight.any() and not outcome.values.any() and outcome.active == 0
    for reduction in ("mean", "sum"):
        loss = reduce(outcome, reduction)
        loss.backward(retain_graph=True)
        assert loss == 0 and not near.grad.any()


def test_each_positive_without_any_reference_is_unpriced() -> None:
    near = torch.randn(3, 0, requires_grad=True)
    outcome = each_positive(near, Related(torch.ones(3, 0), torch.ones(3, 0, dtype=torch.bool)))
    assert outcome.values.tolist() == outcome.weight.tolist() == [0, 0, 0] and outcome.values.requires_grad


def test_margins_and_k_have_the_documented_defaults() -> None:
    assert (Pairs().margin, OneVersusRest().margin) == (1.0, 1.0)
    assert BestK() == BestK(5, 0.1, False, False)
    assert Triplets() == Triplets("uniform", 0.1, 0, 0.5, 1.4, 5)


def test_right_and_wrong_are_candidates_only() -> None:
    relation = Related(torch.tensor([[0.0, 0.0, 0.3, 1.0, 1.0]]), torch.tensor([[True, False, True, True, False]]))
    right, wrong = right_and_wrong(relation)
    assert right.tolist() == [[True, False, False, False, False]] and wrong.tolist() == [[False, False, True, True, False]]


@pytest.mark.parametrize("criterion", [BestK(9)])
def test_k_beyond_the_candidates_is_lowered_and_counted(criterion: Criterion) -> None:
    near, relation = drawn(0)
    outcome = criterion(near, relation)
    valid = outcome.weight > 0
    assert int(outcome.clamped) == int(valid.sum()) > 0 and outcome.values.abs().max() < 1e-9
    few = BestK(3)(near, relation)
    assert int(few.clamped) == int(((few.weight > 0) & (relation.candidate.sum(1) < 3)).sum()) > 0


def test_best_k_of_the_released_code() -> None:
    near, right = torch.tensor([[0.5, 0.49, 0.41, 0.4]]).double(), torch.tensor([[False, True, False, True]])
    relation = Related((~right).double(), torch.ones(1, 4, dtype=torch.bool))

    def peak(*values: float) -> float:
        return 2 / 40 * math.log1p(sum(math.exp(40 * (v - 0.5)) for v in values))

    plain = float(BestK(2, 0.02)(near, relation).values)
    assert plain == pytest.approx(0.52 + 0.49 - 0.49 - 0.4)
    enough = BestK(2, 0.02, log_sum_exp=True)(near, relation)
    assert float(enough.values) == pytest.approx(plain + peak(0.52, 0.49) - peak(0.49, 0.4))
    short = float(BestK(3, 0.02, log_sum_exp=True)(near, relation).values)  # two right ones only: their sum has no soft term
    assert short == pytest.approx(0.52 + 0.49 + 0.43 - (0.49 + 0.4 + 0.52) + peak(0.52, 0.49, 0.43) - peak(0.52))
    assert BestK(2, 0.02, class_balanced=True)(near, relation).weight.tolist() == pytest.approx([1 / 3])


def test_misplaced_sets_have_equal_size_and_leave_ties_to_the_earlier() -> None:
    near, relation = drawn(5, n=40)
    for k in (1, 3, 7):
        out, taken = misplaced(near, relation, k, 0.2)
        assert torch.equal(out.sum(1), taken.sum(1)) and not (out & taken).any()
    tied = Related(torch.tensor([[1.0, 1.0, 0.0, 0.0]]), torch.ones(1, 4, dtype=torch.bool))
    out, taken = misplaced(torch.zeros(1, 4), tied, 2, 0.0)
    assert out.tolist() == [[False, False, True, True]] and taken.tolist() == [[True, True, False, False]]


@named
def test_a_single_reference_is_enough(name: str) -> None:
    for cost in (0.0, 1.0):
        near, relation = torch.tensor([[-0.5]]).double(), Related(torch.tensor([[cost]]).double(), torch.ones(1, 1, dtype=torch.bool))
        outcome = CRITERIA[name][0](near, relation)
        values, weights, active = loop(near, relation, CRITERIA[name][1])
        torch.testing.assert_close((outcome.values, outcome.weight), (values, weights))
        assert int(outcome.active) == active


def test_ties_at_the_margin_are_neither_active_nor_semi_hard() -> None:
    near = torch.tensor([[0.5, 0.25, 0.5, -0.75]])  # right; at the margin; as near as the right one; far
    relation = Related(torch.tensor([[0.0, 1.0, 1.0, 1.0]]), torch.ones(1, 4, dtype=torch.bool))
    assert Triplets("semi-hard", 0.25)(near, relation).values.tolist() == [0.0]  # none strictly inside: the farthest
    outcome = Triplets("uniform", 0.25)(near, relation)
    assert outcome.values.tolist() == pytest.approx([0.25 / 3]) and int(outcome.active) == 1


def test_pairs_at_rest_are_not_active() -> None:
    relation = Related(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1, 4, dtype=torch.bool))
    outcome = Pairs(1.0)(torch.tensor([[0.0, -0.5, -1.0, -0.5]]), relation)  # together, apart; outside the margin, inside
    assert int(outcome.active) == 2 and outcome.values.tolist() == [0.125]


@pytest.mark.parametrize("apart", [False, True])
def test_a_column_for_a_label_is_priced_as_the_relation_is(apart: bool) -> None:
    near = 5 * torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    near[3] *= 100  # far beyond what an exponential holds
    near.requires_grad_()
    column = torch.tensor([0, 5, 2, 1, 3, 3, 0, 2, 4])
    cost = (column[:, None] != torch.arange(6)).double()
    by_mask = any_positive(near, Related(cost, (cost > 0) if apart else torch.ones(9, 6, dtype=torch.bool)))
    by_column = own_column(near, column, apart=apart)
    torch.testing.assert_close(by_column[:2], by_mask[:2])
    assert by_column.weight.tolist() == [1] * 9 and by_column.active == by_mask.active == 9 * (6 - apart)
    up = torch.linspace(-1, 1, 9).double()
    grads = [torch.autograd.grad(o.values, near, up, create_graph=True)[0] for o in (by_column, by_mask)]
    torch.testing.assert_close(*grads)
    torch.testing.assert_close(*(torch.autograd.grad(g[[0, 1, 2, 4, 5, 6, 7, 8]].square().sum(), near)[0] for g in grads))
    assert own_column(torch.tensor([[1.0, torch.nan, 0.0]]), torch.tensor([0]), apart=apart).values.isnan().all()


@pytest.mark.parametrize(
    "labels", [[4, 2, 4, 2, 7, 4, 9, 9], [4, 4, 2, 7, 1, 3, 5, 6], [0, 1, 2, 3, 4, 5, 6, 7]], ids=["three answers", "one answer", "none"]
)
@pytest.mark.parametrize("read", [True, False], ids=["filled", "slots"])
def test_one_answer_a_class_is_priced_as_each_of_the_relation_is(labels: list[int], read: bool) -> None:
    near = 5 * torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batch = Points(near, torch.tensor(labels), torch.tensor([0, 1, 2, 3, 4, 5, 6, 6]))  # the last is asked by its own copy
    answers = OnePerClass()(batch._replace(embeddings=torch.eye(8, dtype=torch.float64)))
    answers = filled(answers) if read else answers
    near = (near @ answers.embeddings.T).requires_grad_()
    by_mask = each_positive(near, SameLabel()(batch, answers))
    if len(answers.embeddings) < 2:  # no column to stand in; the composition leaves these to the mask
        assert not by_mask.weight.any()
        return
    by_column = one_answer(near, *answered(batch, answers))
    torch.testing.assert_close(by_column[:2], by_mask[:2])
    assert by_column.active == by_mask.active == (3 if labels[1] == 2 else 0)
    torch.testing.assert_close(*(torch.autograd.grad(o.values.sum(), near)[0] for o in (by_column, by_mask)))


@pytest.mark.parametrize("name", ["pairs", "each"])
def test_second_derivatives(name: str) -> None:
    near, relation = drawn(7)
    near.requires_grad_()
    assert torch.autograd.gradcheck(lambda near: CRITERIA[name][0](near, relation).values, near)
    assert torch.autograd.gradgradcheck(lambda near: CRITERIA[name][0](near, relation).values, near)


@pytest.mark.parametrize("name", ["pairs", "each"])
def test_what_is_not_a_number_shows(name: str) -> None:
    relation = Related(torch.tensor([[0.0, 1.0, 1.0] + [1.0] * 9]).expand(2, -1), torch.ones(2, 12, dtype=torch.bool))
    for column in (0, 1):
        near = -torch.ones(2, 12)
        near[0, column] = torch.nan
        assert CRITERIA[name][0](near, relation).values.isnan().tolist() == [True, False]


def test_each_of_a_few_right_ones_is_each_of_many() -> None:
    """Where right ones are few they are valid alone; both ways equal the loop."""
    g = torch.Generator().manual_seed(0)
    near = torch.randn(6, 40, dtype=torch.float64, generator=g, requires_grad=True)
    for share in (0.05, 0.6):
        relation = Related((torch.rand(6, 40, generator=g) > share).double(), torch.rand(6, 40, generator=g) < 0.9)
        outcome = each_positive(near, relation)
        torch.testing.assert_close(outcome.values, loop(near, relation, each_loop)[0])
        assert torch.autograd.gradcheck(lambda near, relation=relation: each_positive(near, relation).values, near)


@pytest.mark.parametrize("shape", [(3, 5), (700, 300), (2, 70000), (4, 0)])
def test_counts_are_sums(shape: tuple[int, int]) -> None:
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3
    assert torch.equal(count(mask), mask.sum(1)) and count(mask).dtype == torch.int64


def test_reduce_weighs_values() -> None:
    outcome = Outcome(torch.tensor([1.0, 5.0, 0.0]), torch.tensor([3.0, 1.0, 0.0]), torch.tensor(1))
    assert (reduce(outcome, "mean"), reduce(outcome, "sum")) == (2, 8)
    assert reduce(outcome, "none") is outcome.values
    light = outcome._replace(weight=torch.tensor([0.25, 0.25, 0.0]))
    assert reduce(light, "mean") == 3, "weights below one still divide"
    even = Outcome(torch.tensor([1.0, 5.0]), torch.ones(2), torch.tensor(1))
    assert all(reduce(even, kind) == reduce(even._replace(even=True), kind) for kind in ("mean", "sum"))  # type: ignore[arg-type]
    values = torch.ones(2, requires_grad=True)
    nobody = reduce(Outcome(values, torch.zeros(2), torch.tensor(0)), "mean")
    (65536 * nobody).backward()  # as a scaler of gradients does
    assert nobody == 0 and values.grad is not None and values.grad.tolist() == [0, 0]
