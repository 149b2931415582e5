"""Hamming search by bits, by products and by definition gives the same; ties go to the earlier reference."""

import numpy as np
import pytest
import torch

from nearkin.compose.affinity import Hamming
from nearkin.compose.points import Points
from nearkin.search import hamming, nearest
from nearkin.search.packing import pack


def draw(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def oracle(q: np.ndarray, r: np.ndarray, k: int, skip: int = -1) -> list[tuple[int, int]]:
    far = [(sum((a >= 0) != (b >= 0) for a, b in zip(q, other, strict=True)), j) for j, other in enumerate(r) if j != skip]
    return [(j, distance) for distance, j in sorted(far)[:k]]


@pytest.fixture(params=["numba", "numpy"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(hamming, "find_spec", lambda _: None)


@pytest.mark.parametrize("d", [3, 8, 16, 64, 65, 128])
def test_neighbors_are_those_of_the_definition(engine: None, d: int) -> None:
    q, r = draw(6, d, 1), draw(50, d, 2)
    for k in (1, 7, 50, 60):
        positions, distances = hamming.nearest_codes(pack(q), pack(r), k)
        for i in range(6):
            assert list(zip(positions[i].tolist(), distances[i].tolist(), strict=True)) == oracle(q[i], r, k)


def test_skipped_positions_and_missing_neighbors_are_minus_one(engine: None) -> None:
    q, r = draw(4, 16, 3), draw(5, 16, 4)
    skip = np.array([2, -1, 0, 4])
    positions, distances = hamming.nearest_codes(pack(q), pack(r), 5, skip)
    for i in range(4):
        expected = oracle(q[i], r, 5, int(skip[i]))
        expected += [(-1, -1)] * (5 - len(expected))
        assert list(zip(positions[i].tolist(), distances[i].tolist(), strict=True)) == expected


def test_nearest_by_hamming_is_the_same_by_bits_and_by_products() -> None:
    q, r = torch.from_numpy(draw(20, 24, 5)), torch.from_numpy(draw(300, 24, 6))
    by_bits = nearest(q, r, 9, Hamming())
    unused = torch.full((20,), -7)
    by_products = nearest(Points(q, ids=unused), Points(r, ids=torch.arange(300)), 9, Hamming(), exclude_same_id=True)
    assert torch.equal(by_bits.positions, by_products.positions) and torch.equal(by_bits.affinity, by_products.affinity)
    in_blocks = nearest(q, r, 9, Hamming(), block=37)
    assert torch.equal(by_bits.positions, in_blocks.positions)
