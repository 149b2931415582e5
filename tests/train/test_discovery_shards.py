"""Discovery over shards finds what discovery over one tensor finds."""

from pathlib import Path

import pytest
import torch

from nearkin.train.discovery import discover, neighborhoods_of
from tests.search.test_exact_shards import sharded, tied

pytest.importorskip("pyarrow")


@pytest.mark.parametrize("k", [1, 7])
def test_neighborhoods_over_shards(k: int, tmp_path: Path) -> None:
    x = tied(200) + 0.5
    found = discover(sharded(tmp_path / "s", x, [90, 0, 60, 50]), k, block=33)
    whole = discover(torch.from_numpy(x), k)
    assert torch.equal(found.table, whole.table)
    assert torch.allclose(found.entropy, whole.entropy, rtol=1e-5, atol=1e-6)


def test_k_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"k \(20\) must be below the number of points \(20\)"):
        discover(sharded(tmp_path / "s", tied(20), [10, 10]), 20)


def test_the_shard_is_checked(tmp_path: Path) -> None:
    shards = sharded(tmp_path / "s", tied(20), [10, 10])
    for number, words in (
        (2, r"number \(2\) must be below the number of shards \(2\)"),
        (-1, r"number \(-1\) must be a whole number of at least 0"),
    ):
        with pytest.raises(ValueError, match=words):
            neighborhoods_of(shards, number)
