"""Counts of an evaluation against literal loops, and the descriptions of figures."""

import math

import pytest
import torch

from nearkin.evaluate import Score
from nearkin.report import descriptions
from nearkin.report.measure import flow_counts, neighbors_of, overlap, worst_queries
from nearkin.search import Neighbors


def test_the_flow_counts_every_neighbor_once() -> None:
    generator = torch.Generator().manual_seed(0)
    labels, neighbors = torch.randint(0, 4, (50,), generator=generator), torch.randint(-1, 4, (50, 6), generator=generator)
    expected = torch.zeros(4, 4, dtype=torch.int64)
    for i in range(50):
        for j in range(6):
            if neighbors[i, j] >= 0:
                expected[labels[i], neighbors[i, j]] += 1
    assert torch.equal(flow_counts(labels, neighbors, 4), expected)


def test_no_neighbor_has_no_label() -> None:
    found = Neighbors(torch.tensor([[1, 0], [0, -1]]), torch.zeros(2, 2))
    assert neighbors_of(found, torch.tensor([7, 8])).tolist() == [[8, 7], [7, -1]]


def test_overlap_of_sets_by_a_literal_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(40, 3, generator=generator) < 0.4 for _ in range(2))
    for i, found in enumerate(overlap(a, b).tolist()):
        mine, theirs = set(a[i].nonzero()[:, 0].tolist()), set(b[i].nonzero()[:, 0].tolist())
        assert math.isnan(found) if not mine | theirs else found == pytest.approx(len(mine & theirs) / len(mine | theirs))


def test_the_worst_come_first() -> None:
    right = torch.tensor([[1, 1, 1], [0, 0, 1], [0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]]).bool()
    affinity = -torch.tensor([[1, 2, 3], [1, 2, 3], [5, 6, 7], [1, 2, 3], [4, 5, 6], [1, 2, 3]]).float()
    assert worst_queries(right, affinity).tolist() == [4, 2, 1, 5, 3, 0]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("1-nn", "nearest reference has their class"),
        ("25-nn", "25 nearest"),
        ("weighted 200-nn", "exp(cosine / 0.07)"),
        ("precision@7", "7 nearest"),
        ("map@r", "cut at R"),
        ("map@5", "smaller of R and 5"),
        ("nmi", "arithmetic mean"),
        ("effective_rank", "collapse"),
    ],
)
def test_every_figure_is_defined_in_words(name: str, part: str) -> None:
    assert part in descriptions.definition(name)


def test_numbers_read_well() -> None:
    score = Score("1-nn", 0.9312, 0.9, 0.95, 0.1, left_out={"no positive in the gallery": 1234})
    assert descriptions.number(score.value, "1-nn") == "93.1 %" and descriptions.interval(score) == "90.0 to 95.0 %"
    assert descriptions.left_out(score) == "1,234 (no positive in the gallery)"
    assert (
        descriptions.number(None, "1-nn") == descriptions.number(math.nan, "r2") == "-" and descriptions.interval(Score("r2", 0.5)) == "-"
    )
    assert (
        descriptions.number(-0.25, "r2") == "-0.250"
        and descriptions.number(12345.6, "mae") == "12,346"
        and descriptions.definition("no such") == ""
    )
