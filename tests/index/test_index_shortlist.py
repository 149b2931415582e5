"""One query by the shortlist is answered as `nearest` answers it: same points, same order, same ties."""

import numpy as np
import pytest
import torch

from nearkin.compose.metrics import METRICS
from nearkin.compose.points import Points
from nearkin.index.contract import Entries, Where
from nearkin.index.local import LocalIndex
from nearkin.index.shortlist import Shortlist
from nearkin.index.snapshot import SHORTLIST_FROM
from nearkin.search import nearest

N = SHORTLIST_FROM + 500


def sampled(kind: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 12))
    if kind == "whole numbers":  # ties everywhere
        x = rng.integers(-1, 2, (N, 12))
    elif kind == "far away":
        x = x + 1e4
    elif kind == "two scales":
        x[::2] *= 1e-3
    elif kind == "copies":
        x = np.repeat(x[: N // 50], 50, axis=0)
    elif kind == "all one":
        x = np.ones((N, 12))
    return x.astype(np.float32)


@pytest.mark.parametrize("kind", ["plain", "whole numbers", "far away", "two scales", "copies", "all one"])
@pytest.mark.parametrize("metric", sorted(METRICS))
def test_the_same_answer(kind: str, metric: str, tmp_path) -> None:
    x = sampled(kind)
    index = LocalIndex.create(tmp_path / "i", model="m", metric=metric, dimension=12)
    index.add(Entries(x, labels=["in" if i % 10 else "out" for i in range(N)]))
    tensor, inside = torch.from_numpy(x), torch.tensor([i for i in range(N) if i % 10])
    for row in (0, 7, N - 1):
        query = tensor[row : row + 1] + 0.25
        true = nearest(query, tensor, 15, METRICS[metric])
        found, affinity, exact = index.snapshot.neighbors(query.numpy(), 15)
        assert exact.all() and found[0].tolist() == true.positions[0].tolist()
        assert np.array_equal(affinity, true.affinity.numpy())
        true = nearest(query, tensor[inside], 15, METRICS[metric])
        found, _, _ = index.snapshot.neighbors(query.numpy(), 15, where=Where(labels=("in",)))
        assert found[0].tolist() == inside[true.positions[0]].tolist()
        known = Points(tensor, ids=torch.arange(N))
        true = nearest(Points(tensor[row : row + 1], ids=torch.tensor([row])), known, 15, METRICS[metric], exclude_same_id=True)
        found, _, _ = index.snapshot.neighbors(x[row : row + 1], 15, exclude=[row])
        assert found[0].tolist() == true.positions[0].tolist()


@pytest.mark.parametrize("metric", ["squared_euclidean", "cosine", "inner_product"])
def test_the_list_is_short_on_plain_data_and_holds_the_nearest(metric: str) -> None:
    x = torch.from_numpy(sampled("plain"))
    near = Shortlist(x, metric)
    for row in range(20):
        list_ = near.candidates(x[row], 10)
        true = nearest(x[row : row + 1], x, 10, METRICS[metric]).positions[0]
        assert list_ is not None and len(list_) < 20 and set(true.tolist()) <= set(list_.tolist())


def test_what_cannot_be_bounded_is_left_to_nearest() -> None:
    assert Shortlist(torch.from_numpy(sampled("plain")) * 1e25, "squared_euclidean").candidates(torch.full((12,), 1e25), 3) is None
    assert Shortlist(torch.ones(5000, 3), "squared_euclidean").candidates(torch.ones(3), 3) is None
    assert torch.equal(Shortlist(torch.ones(50, 3), "cosine").candidates(torch.ones(3), 60, torch.arange(7)), torch.arange(7))
