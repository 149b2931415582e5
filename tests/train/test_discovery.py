"""Discovery: neighborhoods, entropies, and which points to trust."""

import math

import numpy as np
import pytest
import torch

from nearkin.train.discovery import _pair_sums, agreement, curriculum, discover, entropies, keep_only, mutual, trusted, weights

PAIR = torch.tensor([[1], [0], [0]])
TOY = torch.tensor([[1, 0], [0.8, 0.6], [0, 1], [-1, 0]], dtype=torch.float64)


def literal_entropies(x, temperature):
    x = torch.nn.functional.normalize(x.double(), dim=1)
    found = []
    for i in range(len(x)):
        shares = [math.exp(float(x[i] @ x[j]) / temperature - 1 / temperature) for j in range(len(x))]
        chances = [w / sum(shares) for w in shares]
        found.append(-sum(p * math.log(p) for p in chances if p > 0))
    return torch.tensor(found, dtype=torch.float64)


def test_the_known_answer():
    found = discover(TOY, 1, 0.1)
    assert found.table[:, 0].tolist() == [1, 0, 1, 2]
    torch.testing.assert_close(
        found.entropy, torch.tensor([0.36576421, 0.44105769, 0.0910691, 0.00049971], dtype=torch.float64), atol=1e-8, rtol=0
    )
    assert found.entropy.argsort().tolist() == [3, 2, 0, 1]


@pytest.mark.parametrize("block", [1, 7, 32, 1000])
@pytest.mark.parametrize("temperature", [0.02, 0.1, 5.0])
def test_any_block_size_equals_the_literal_loop(block, temperature):
    x = torch.randn(60, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(entropies(x, temperature, block=block), literal_entropies(x, temperature), atol=1e-11, rtol=1e-11)
    single = entropies(x.float(), temperature, block=block).double()
    torch.testing.assert_close(single, literal_entropies(x.float(), temperature), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_compiled_sums_are_those_of_torch(threads):
    pytest.importorskip("numba")
    from nearkin.kernels.numba_entropies import BLOCK, pair_sums

    x = torch.nn.functional.normalize(torch.randn(BLOCK + 77, 9, generator=torch.Generator().manual_seed(2)), dim=1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = pair_sums(x, 14.4)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(found, _pair_sums(x.double(), 14.4, 100), rtol=2e-5, atol=1e-4)


def test_neighbors_are_the_nearest_others_by_cosine():
    x = torch.randn(50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * torch.rand(50, 1) * 10
    table = discover(x, 3).table
    near = torch.nn.functional.normalize(x, dim=1) @ torch.nn.functional.normalize(x, dim=1).T
    near.fill_diagonal_(-2)
    assert torch.equal(table, near.argsort(dim=1, descending=True, stable=True)[:, :3])


def test_identical_points_have_finite_entropies():
    x = torch.ones(5, 3)
    found = discover(x, 2)
    assert found.table.tolist() == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]]  # ties to the smaller id, never itself
    torch.testing.assert_close(found.entropy, torch.full((5,), math.log(5)))


def test_extremes():
    torch.testing.assert_close(entropies(torch.eye(4, dtype=torch.float64), 1e-3), torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0)
    spread = entropies(torch.randn(30, 5), 1e6)
    torch.testing.assert_close(spread, torch.full((30,), math.log(30)))


def test_the_curriculum_has_the_papers_sizes():
    entropy = torch.rand(50_000)
    sizes = [0] + [int(trusted(entropy, share).sum()) for share in curriculum(4)]
    assert sizes == [0, 12_500, 25_000, 37_500, 50_000]
    assert curriculum(3, one_off=True) == (1.0, 1.0, 1.0)
    assert int(trusted(entropy, 0.0).sum()) == 0


def test_the_lowest_entropies_are_trusted_and_ties_go_to_the_earlier():
    assert trusted(torch.tensor([3.0, 1, 2, 1]), 0.5).tolist() == [False, True, False, True]
    assert trusted(torch.ones(4), 0.5).tolist() == [True, True, False, False]


def test_mutual_neighbors_only():
    table = torch.tensor([[1], [0], [0]])
    assert mutual(table)[:, 0].tolist() == [True, True, False]
    assert keep_only(table, mutual(table))[:, 0].tolist() == [1, 0, 2]


def test_agreement_is_for_reporting():
    table, labels = torch.tensor([[1, 2], [0, 2], [0, 1]]), torch.tensor([0, 0, 1])
    assert agreement(table, labels) == (6, 2) and agreement(table, labels).share == pytest.approx(2 / 6)
    assert agreement(table, labels, torch.tensor([True, False, False])) == (2, 1)
    assert agreement(table, torch.tensor([0, -1, 1])) == (2, 0)
    assert math.isnan(agreement(table, labels, torch.zeros(3, dtype=torch.bool)).share)


def test_dropped_neighbors_do_not_count_in_agreement():
    generator = torch.Generator().manual_seed(0)
    table = discover(torch.randn(2000, 16, generator=generator), 3).table
    labels = torch.randint(0, 10, (2000,), generator=generator)
    kept = mutual(table)
    assert 0.2 < float(kept.double().mean()) < 0.8
    found = agreement(keep_only(table, kept), labels)
    assert found == (int(kept.sum()), int((kept & (labels[table] == labels[:, None])).sum()))
    assert abs(found.share - 0.1) < 0.03  # classes by chance


def test_arrays_are_accepted_for_tensors():
    found, same = discover(TOY, 2), discover(TOY.numpy(), 2)
    assert torch.equal(found.table, same.table) and torch.equal(found.entropy, same.entropy)
    assert torch.equal(entropies(TOY.numpy()), found.entropy)
    entropy, table, labels = found.entropy.numpy(), found.table.int().numpy(), np.array([0, 0, 1, 1])
    chosen, kept = trusted(found.entropy, 0.5), mutual(found.table)
    assert torch.equal(trusted(entropy, 0.5), chosen) and torch.equal(weights(entropy, 0.5), weights(found.entropy, 0.5))
    assert torch.equal(mutual(table), kept) and torch.equal(keep_only(table, kept.numpy()), keep_only(found.table, kept))
    assert agreement(table, labels, chosen.numpy()) == agreement(found.table, torch.from_numpy(labels), chosen)


def test_no_points_to_trust():
    none = torch.empty(0)  # every point has a class
    assert trusted(none, 0.5).shape == weights(none, 0.5).shape == (0,)
    assert mutual(torch.empty(0, 2).long()).shape == (0, 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: discover([[1.0, 2.0]]), "vectors must be a tensor or a numpy array of numbers in memory, not list"),
        (lambda: discover(np.array([["a"], ["b"]])), "vectors must be a tensor or a numpy array of numbers"),
        (lambda: discover(torch.ones(3, 2), k="2"), r"k \('2'\) must be a whole number of at least 1"),
        (lambda: discover(torch.ones(3, 2), k=1.0), r"k \(1.0\) must be a whole number"),
        (lambda: discover(torch.ones(3, 2), 1, "0.1"), r"temperature \('0.1'\) must be a finite number above 0"),
        (lambda: discover(torch.ones(0, 2)), r"number of points \(0\) must be at least 2; give more points"),
        (lambda: entropies(torch.ones(1, 2)), r"number of points \(1\) must be at least 2"),
        (lambda: entropies(torch.ones(3, 2), block=2.5), r"block \(2.5\) must be a whole number"),
        (lambda: trusted([0.1, 0.2], 0.5), "entropy must be a tensor or a numpy array .* not list"),
        (lambda: trusted(torch.ones(3), "half"), r"share \('half'\) must be between 0 and 1"),
        (lambda: trusted(torch.tensor([1.0, math.nan]), 0.5), r"entropy hold NaN or infinity in 1 rows, first in \[1\]"),
        (lambda: weights(torch.tensor([0.1, math.nan, 0.3]), 0.5), r"entropy hold NaN or infinity in 1 rows, first in \[1\]"),
        (lambda: weights(torch.tensor([0.1, math.inf]), 0), "entropy hold NaN or infinity"),
        (lambda: weights(torch.ones(3, 2), 0.5), r"entropy has shape \(3, 2\) .* give floats \(n,\)"),
        (lambda: weights(torch.arange(3), 0.5), "type torch.int64; give floats"),
        (lambda: weights(torch.ones(3), -1), r"share \(-1\)"),
        (lambda: curriculum(2.5), r"rounds \(2.5\) must be a whole number of at least 1"),
        (lambda: curriculum(True), r"rounds \(True\) must be a whole number"),
        (lambda: mutual(torch.tensor([1, 0, 0])), r"table has shape \(3,\); give \(n, k\)"),
        (lambda: mutual(torch.tensor([[1], [7]])), "table holds ids from 1 to 7; ids run from 0 to 1"),
        (lambda: mutual(torch.tensor([[1], [-1]])), "table holds ids from -1 to 1"),
        (lambda: mutual([[1], [0]]), "table must be a tensor"),
        (
            lambda: keep_only(torch.zeros(20, 1).long(), torch.ones(3).bool()),
            r"kept has shape \(3,\); .* each place of the table, \(20, 1\)",
        ),
        (lambda: keep_only(PAIR, torch.ones(3).bool()), r"kept has shape \(3,\)"),  # would be taken for a row
        (lambda: agreement(PAIR, torch.tensor([0, 1])), r"labels have shape \(2,\) for 3 points; give one class for each"),
        (lambda: agreement(PAIR, ["a", "a", "b"]), "labels must be a tensor"),
        (lambda: agreement(PAIR, torch.zeros(3), torch.ones(2).bool()), r"chosen has shape \(2,\); .* each of the 3 points"),
        (lambda: discover(torch.ones(3, 2), 3), r"k \(3\) must be below the number of points \(3\); lower k"),
        (lambda: discover(torch.ones(3, 2), 0), r"k \(0\)"),
        (lambda: discover(torch.ones(3, 2), 1, 0.0), r"temperature \(0.0\) must be a finite number above 0"),
        (lambda: entropies(torch.ones(3, 2), block=0), r"block \(0\)"),
        (lambda: entropies(torch.full((3, 2), math.nan)), "NaN or infinity"),
        (lambda: entropies(torch.ones(3)), r"shape \(3,\)"),
        (lambda: trusted(torch.ones(3), 1.5), r"share \(1.5\)"),
        (lambda: trusted(torch.full((3,), math.nan), 0.5), "one finite number"),
        (lambda: curriculum(0), r"rounds \(0\)"),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mutual(PAIR.float()), "table is torch.float32; a table holds integer ids"),
        (lambda: keep_only(PAIR, PAIR), "kept is torch.int64; kept holds truth values"),
        (lambda: agreement(PAIR, torch.zeros(3), torch.arange(3)), "chosen is torch.int64; chosen holds truth values"),
    ],
)
def test_wrong_types(call, words):
    with pytest.raises(TypeError, match=words):
        call()
