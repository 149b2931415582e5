"""What the table of test_oracle.py cannot say: handed-in references, draws, exact ties, state that moves, long gaps."""

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from nearkin.compose.criterion import each_positive
from nearkin.compose.points import Points
from nearkin.compose.relation import Related
from nearkin.compose.triplets import Triplets, drawn_by
from nearkin.objectives import NCA, Angular, CenterPull, InstanceDiscrimination, NPair, PrecisionAtK, Triplet
from tests import oracles as o
from tests import pair_oracles as pairs
from tests.batches import BANK, CLASSES, Batch, batches, close, compare


@pytest.mark.parametrize("form", ["log", "expected"])
def test_a_query_meets_itself_among_references_handed_in(form: Any) -> None:
    """References carry ids: the batch's own samples are passed over there too, and the references have a gradient."""
    smooth = []

    @given(batches())
    def run(b: Batch) -> None:
        z, r = b.z.clone().requires_grad_(), b.bank.clone().requires_grad_()
        ids = list(range(BANK))
        labels = [b.labels[b.samples.index(i)] if i in b.samples else i % CLASSES for i in ids]
        oracle = o.nca_log if form == "log" else o.nca_expected
        points = Points(r, torch.tensor(labels), torch.tensor(ids))
        objective = NCA(form, 2.0)
        smooth.append(
            compare(
                lambda reduction: objective(z, b.labels, ids=b.samples, references=points, reduction=reduction),
                [z, r],
                lambda rows: oracle(b.crowd(rows[0]), o.Crowd(rows[1], labels, ids), o.minus_squared(2.0)),
            )
        )

    run()
    assert all(smooth)


@given(b=batches(), dimension=st.sampled_from([3, 8, 64]))
def test_distance_weighted_draws(b: Batch, dimension: int) -> None:
    """The weights are 1 / q(d), and each right one is paired with the wrong one that was drawn for it."""
    drawn: list[tuple[Tensor, Tensor]] = []

    def watched(weight: Tensor) -> Tensor:
        drawn.append((weight, drawn_by(weight)))
        return drawn[-1][1]

    z = b.z.clone().requires_grad_()
    objective = Triplet("distance-weighted", 0.35, dimension=dimension)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearkin.compose.triplets.drawn_by", watched)
        values = objective(z, b.labels, ids=b.samples, reduction="none")
    (weight, draw), rows = drawn[0], o.scalars(b.z)
    for i in range(len(rows)):
        positives, others = o.split(b.crowd(rows), i, b.crowd(rows))
        s = {j: o.cosine()(rows[i], rows[j]) for j in positives + others}
        logs = {j: pairs.draw_log_weight(float(s[j]), dimension) for j in others}
        peak = max(logs.values(), default=-torch.inf)
        if peak > -torch.inf:
            expected = torch.zeros(len(rows), dtype=torch.float64)
            for j, value in logs.items():
                expected[j] = torch.tensor(value - peak, dtype=torch.float64).exp()
            close(weight[i] / weight[i].max(), expected)
        chosen = [(j, int(draw[i, j])) for j in positives] if peak > -torch.inf else []
        close(values[i].detach(), torch.as_tensor(pairs.mean_hinge(s, chosen, 0.35)[0], dtype=torch.float64))


CHOICES = {"uniform": pairs.uniform, "hard": pairs.hard, "semi-hard": pairs.semi_hard, "misplaced": pairs.misplaced_pairs(3)}


@pytest.mark.parametrize("choice", CHOICES)
@given(
    rows=st.lists(
        st.lists(st.tuples(st.integers(-4, 4), st.sampled_from(["right", "wrong", "itself"])), min_size=6, max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_triplets_under_exact_ties(choice: Any, rows: list[list[tuple[int, str]]]) -> None:
    """Quarters are exact, so that a tie is a tie in both: a wrong one as near as the right one is not farther, one at the
    margin's edge is not inside, and of two tied ones the earlier is nearer."""
    affinity = torch.tensor([[s / 4 for s, _ in row] for row in rows], dtype=torch.float64)
    cost = torch.tensor([[float(kind != "right") for _, kind in row] for row in rows], dtype=torch.float64)
    candidate = torch.tensor([[kind != "itself" for _, kind in row] for row in rows])
    outcome = Triplets(choice, 0.5, k=3)(affinity, Related(cost, candidate))
    for i, row in enumerate(rows):
        positives = [j for j, (_, kind) in enumerate(row) if kind == "right"]
        others = [j for j, (_, kind) in enumerate(row) if kind == "wrong"]
        s = {j: affinity[i, j] for j in sorted(positives + others)}
        value, weight = pairs.mean_hinge(s, CHOICES[choice](s, positives, others, 0.5), 0.5)
        assert outcome.values[i] == pytest.approx(float(value), abs=1e-14)
        assert outcome.weight[i] == weight


@given(b=batches(), rate=st.sampled_from([0.1, 0.5, 1.0]))
def test_centers_move_by_their_rule(b: Batch, rate: float) -> None:
    pull = CenterPull(CLASSES, b.d, rate).double()
    pull.references.vectors.copy_(b.anchors())
    pull.update(b.z, b.labels)
    expected = o.center_update(b.anchors().tolist(), b.z.tolist(), b.labels, rate)
    close(pull.references.vectors, torch.tensor(expected, dtype=torch.float64))


@given(b=batches(), momentum=st.sampled_from([0.1, 0.5, 1.0]))
def test_the_bank_moves_by_its_rule(b: Batch, momentum: float) -> None:
    objective = InstanceDiscrimination(BANK, b.d, momentum=momentum).double()
    objective.references.vectors.copy_(b.bank)
    ids = list(range(len(b.z)))
    z = b.z + 0.01  # a zero vector has no direction
    objective.update(z, ids=ids)
    expected = o.bank_update(b.bank.tolist(), z.tolist(), ids, momentum)
    close(objective.references.vectors, torch.tensor(expected, dtype=torch.float64))


@given(batches())
def test_class_balanced_sums_the_means_of_the_classes(b: Batch) -> None:
    """The released code's averaging; a class of one has no mean."""
    ids = list(range(len(b.z)))
    values = PrecisionAtK(2, 0.3)(b.z, b.labels, reduction="none")
    total = PrecisionAtK(2, 0.3, class_balanced=True)(b.z, b.labels, ids=ids, reduction="sum")
    members = {c: [i for i in ids if b.labels[i] == c] for c in b.labels}
    means = [values[rows].mean() for rows in members.values() if len(rows) > 1]
    close(total, torch.stack(means).sum() if means else torch.zeros((), dtype=torch.float64))
    if means:  # released: 0.1 of the covariance term next to that sum
        released = PrecisionAtK(2, 0.3, covariance=0.1 / len(means), class_balanced=True)
        spread = released(b.z, b.labels, ids=ids, reduction="sum") - total
        close(spread, 0.1 * o.covariance_spread(o.scalars(b.z)))


@pytest.mark.parametrize("gap", [19.0, 20.5, 25.0, 60.0])
def test_a_long_gap_keeps_its_digits(gap: float) -> None:
    """torch's softplus is a straight line from 20 on by default: 2e-9 too low in float64."""
    s = torch.tensor([[0.0, gap]], dtype=torch.float64, requires_grad=True)
    relation = Related(torch.tensor([[0.0, 1.0]], dtype=torch.float64), torch.tensor([[True, True]]))
    value = each_positive(s, relation).values[0]
    slope = torch.autograd.grad(value, s)[0][0, 1]
    exact = torch.tensor(gap, dtype=torch.float64)
    torch.testing.assert_close(value.detach(), exact + (-exact).exp().log1p(), rtol=1e-15, atol=0)
    torch.testing.assert_close(slope, 1 / (1 + (-exact).exp()), rtol=1e-15, atol=0)


def test_angular_keeps_the_digits_of_a_long_gap() -> None:
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [0.9, 0.3]], dtype=torch.float64, requires_grad=True)
    compare(
        lambda reduction: Angular(60.0)(z, [0, 0, 1], reduction=reduction),
        [z],
        lambda rows: pairs.angular(o.Crowd(rows[0], [0, 0, 1], [0, 1, 2]), 60.0),
    )


def test_n_pair_keeps_the_digits_of_a_long_gap() -> None:
    z = torch.tensor([[5.0, 0.0], [0.0, 1.0], [4.2, 0.0], [4.1, 1.0]], dtype=torch.float64, requires_grad=True)
    assert compare(
        lambda reduction: NPair(0.0)(z, [0, 0, 1, 1], reduction=reduction),
        [z],
        lambda rows: pairs.n_pair(o.Crowd(rows[0], [0, 0, 1, 1], [0, 1, 2, 3]), 0.0),
    )
