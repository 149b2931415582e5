"""Rank counts equal a count of negatives and positives, one pair at a time, with few ties and with many, in one part or more."""

import pytest
import torch

from nearkin.evaluate.rank_counts import RankCounts, rank_counts, rank_counts_in_parts


def counted(near: list[float], first: int, stop: int) -> list[tuple[int, int, int, int]]:
    """Negatives above and tied, positives above and tied, for each positive of one query, nearest first."""
    positives = sorted((x for x in near[first:stop] if x > -torch.inf), reverse=True)
    negatives = near[:first] + near[stop:]
    return [(sum(s > x for s in negatives), negatives.count(x), sum(k > x for k in positives), positives.count(x)) for x in positives]


def check(found: RankCounts, near: torch.Tensor, spans: torch.Tensor) -> None:
    for i, (row, (first, stop)) in enumerate(zip(near.tolist(), spans.tolist(), strict=True)):
        expected = counted(row, first, stop)
        assert int(found.positives[i]) == len(expected) == int(found.weight[i].sum())
        assert int(found.candidates[i]) == sum(x > -torch.inf for x in row)
        got = torch.stack([found.above[i], found.tied[i], found.positives_above[i], found.positives_tied[i]], 1)[: len(expected)]
        assert [tuple(entry) for entry in got.tolist()] == expected
        assert not bool(found.weight[i, len(expected) :].any()) and not bool(found.tied[i, len(expected) :].any())


@pytest.mark.parametrize("values", [2, 7, 40, 10**6])
def test_rank_counts_equal_the_count(values: int) -> None:
    g = torch.Generator().manual_seed(values)
    near = -torch.randint(values, (30, 50), generator=g).float()
    near[torch.rand(30, 50, generator=g) < 0.1] = -torch.inf  # not ranked
    near[3, 10:20] = -torch.inf  # no positive left
    near[4] = -torch.inf  # no point left
    spans = torch.tensor([[0, 9], [10, 20], [20, 20], [38, 50]])[torch.arange(30) % 4]
    spans[3:5] = torch.tensor([10, 20])
    kept = near.clone()
    check(rank_counts(near, spans), near, spans)
    assert torch.equal(near, kept), "the input is not changed"
    cuts = [slice(0, 13), slice(13, 14), slice(14, 50)]

    def parts() -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(near[:, cut], (spans.clamp(cut.start, cut.stop) - cut.start)) for cut in cuts]

    whole, split = rank_counts(near, spans), rank_counts_in_parts(lambda: iter(parts()), 12)
    assert all(torch.equal(a, b) for a, b in zip(whole, split, strict=True))
