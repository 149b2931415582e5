"""Every loss against its equation as a literal loop in float64, value and gradient."""

import math

import numpy as np
import pytest
import torch

from nearkin.estimators.linear.few_dimensions import nca_errors
from nearkin.estimators.linear.impostors import LMNNLoss, joined
from nearkin.estimators.linear.losses import Cached, MLKRLoss, NCALoss, NCARegressionLoss, pulled_back, solver_points, transformed
from nearkin.estimators.linear.scaling import Units, whitened


def drawn(n, d, p, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x[n // 2] = x[n // 2 - 1]  # a copy
    y = np.sort(rng.integers(classes, size=n))
    y[-1] = classes  # a point without a positive
    return x, y, rng.normal(size=(p, d)) / math.sqrt(d)


def chances(z, i):
    """p_ij of all j by the equation, in the log domain."""
    near = [-((z[i] - z[j]) ** 2).sum() for j in range(len(z))]
    total = torch.logsumexp(torch.stack([s for j, s in enumerate(near) if j != i]), 0)
    return [torch.zeros(()) if j == i else (s - total).exp() for j, s in enumerate(near)]


def nca(a, x, y):
    z = x @ a.T
    return -sum(p for i in range(len(z)) for j, p in enumerate(chances(z, i)) if y[i] == y[j])


def nca_regression(a, x, y):
    z = x @ a.T
    return sum(p * ((y[i] - y[j]) ** 2).sum() for i in range(len(z)) for j, p in enumerate(chances(z, i)))


def mlkr(a, x, y):
    z, total = x @ a.T, 0.0
    for i in range(len(z)):
        predicted = sum(p * y[j] for j, p in enumerate(chances(z, i)))
        total = total + ((y[i] - predicted) ** 2).sum()
    return total


def lmnn(a, x, y, targets, mu):
    z, pull, push = x @ a.T, 0.0, 0.0
    for i in range(len(z)):
        for j in targets[i].tolist():
            near = ((z[i] - z[j]) ** 2).sum()
            pull = pull + near
            for other in range(len(z)):
                if y[other] != y[i]:
                    push = push + torch.clamp(1 + near - ((z[i] - z[other]) ** 2).sum(), min=0)
    return (1 - mu) * pull + mu * push


def by_loop(equation, a, *known):
    live = torch.from_numpy(a).requires_grad_()
    value = equation(live, *known)
    value.backward()
    return float(value.detach()), live.grad.numpy().ravel()


def agree(found, expected, rel):
    assert found[0] == pytest.approx(expected[0], rel=rel)
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=rel * np.abs(expected[1]).max())


@pytest.mark.parametrize("p", [1, 3, 10])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_nca_is_its_equation(p, dtype):
    x, y, a = drawn(24, 10, p)
    loss = NCALoss(torch.from_numpy(x).to(dtype), torch.from_numpy(y))
    agree(loss(a.ravel()), by_loop(nca, a, torch.from_numpy(x), y), 1e-10 if dtype == torch.float64 else 3e-5)
    assert loss.with_positives == 23 and loss.done(-22.99) and not loss.done(-22.9)


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("kind", "equation"), [(NCARegressionLoss, nca_regression), (MLKRLoss, mlkr)])
def test_regressions_are_their_equations(kind, equation, t, dtype):
    x, _, a = drawn(20, 6, 3)
    targets = torch.from_numpy(np.random.default_rng(1).normal(size=(20, t)))
    found = kind(torch.from_numpy(x).to(dtype), targets)(a.ravel())
    agree(found, by_loop(equation, a, torch.from_numpy(x), targets), 1e-9 if dtype == torch.float64 else 5e-5)


def test_printed_values():
    """z = 0, 1, 3: the sum of p_i is 1.952..., the regression costs 6.178..., both by hand."""
    points, one = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64), np.ones(1)
    assert NCALoss(points, torch.tensor([0, 0, 1]))(one)[0] == pytest.approx(-1.952238776691967, rel=1e-12)
    assert NCARegressionLoss(points, points)(one)[0] == pytest.approx(6.178424675197857, rel=1e-12)


def test_one_hot_targets_make_regression_the_expected_form_of_nca():
    x, y, a = drawn(24, 5, 2)
    points, hot = torch.from_numpy(x), math.sqrt(0.5) * torch.eye(4, dtype=torch.float64)[torch.from_numpy(y)]
    value, slope = NCALoss(points, torch.from_numpy(y))(a.ravel())
    agree(NCARegressionLoss(points, hot)(a.ravel()), (value + 24, slope), 1e-10)


@pytest.mark.parametrize("mu", [0.3, 0.5])
def test_lmnn_is_its_equation_and_a_scan_finds_every_impostor(mu):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(18, 5)), np.repeat([0, 1, 2], 6)
    a, targets = rng.normal(size=(3, 5)) / 2, torch.tensor([[(i + 1) % 6 + 6 * (i // 6), (i + 3) % 6 + 6 * (i // 6)] for i in range(18)])
    loss = LMNNLoss(torch.from_numpy(x), torch.tensor([0, 6, 12, 18]), targets, mu)
    expected = by_loop(lmnn, a, torch.from_numpy(x), y, targets, mu)
    value, loss.pairs = loss.scan(a.ravel())
    assert value == pytest.approx(expected[0], rel=1e-12)
    assert 0 < len(loss.pairs.rows) < 18 * 12
    agree(loss(a.ravel()), expected, 1e-10)
    twice = joined(loss.pairs, loss.pairs, 18)
    assert sorted(zip(*twice[:2], strict=True)) == sorted(zip(*loss.pairs[:2], strict=True))


def test_a_subsampled_list_approximates_the_full_one(monkeypatch):
    from nearkin.estimators.linear import impostors

    rng = np.random.default_rng(3)
    x, targets = rng.normal(size=(200, 4)), torch.arange(200)[:, None] ^ 1
    loss = LMNNLoss(torch.from_numpy(x), torch.tensor([0, 100, 200]), targets, 0.5)
    a = np.eye(4).ravel()
    exact, complete = loss.scan(a)
    monkeypatch.setattr(impostors, "MOST_PAIRS", len(complete.rows) // 3)
    again, loss.pairs = loss.scan(a)
    assert again == exact and loss.pairs.weight > 2
    assert loss(a)[0] == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0, 3000.0])
def test_few_dimensions_agree_with_the_kernels_near_and_far(scale, threads):
    rng = np.random.default_rng(4)
    y = np.sort(rng.integers(5, size=600))
    x = rng.normal(size=(600, 7)) + y[:, None] / 2
    points, codes, a = torch.from_numpy(x - x.mean(0)), torch.from_numpy(y), rng.normal(size=(2, 7)) * scale
    expected = NCALoss(points, codes)(a.ravel())
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        value, slope = nca_errors(transformed(points.float(), a.ravel()), NCALoss(points, codes).work.span)
    finally:
        torch.set_num_threads(before)
    assert value - 600 == pytest.approx(expected[0], rel=3e-5)
    gradient = pulled_back(points.float(), slope.float())
    np.testing.assert_allclose(gradient, expected[1], rtol=0, atol=3e-4 * np.abs(expected[1]).max() + 1e-9)


@pytest.mark.parametrize("kind", [NCALoss, NCARegressionLoss, MLKRLoss])
def test_the_whole_matrix_and_the_kernels_agree(kind, monkeypatch):
    x, y, a = drawn(70, 6, 3)
    known = torch.from_numpy(y if kind is NCALoss else np.random.default_rng(7).normal(size=(70, 2)))
    expected = kind(torch.from_numpy(x), known)(a.ravel())
    monkeypatch.setattr("nearkin.estimators.linear.losses.SMALL", 10)
    agree(kind(torch.from_numpy(x), known)(a.ravel()), expected, 1e-10)
    agree(kind(torch.from_numpy(x).float(), known)(a.ravel()), expected, 5e-5)


def test_a_cached_loss_evaluates_each_map_once():
    calls = []

    class Counted:
        points = torch.zeros(2, 1)

        def __call__(self, a):
            calls.append(a.copy())
            return float(a.sum()), a * 2

        def done(self, value):
            return value < 0

    loss, a = Cached(Counted()), np.ones(1)
    value, gradient = loss(a)
    gradient += 5
    assert loss(a)[1].tolist() == [2.0] and value == 1.0 and len(calls) == 1
    a[0] = 3
    assert loss(a)[0] == 3.0 and len(calls) == 2 and loss.done(-1) and not loss.done(1)


def test_units_whiten_and_invert():
    rng = np.random.default_rng(5)
    x = (rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6)) + 7) * [1, 1, 1, 1, 1, 1000.0]
    units = whitened(x)
    np.testing.assert_allclose(units.forward @ units.back, np.eye(6), atol=1e-8)
    points = solver_points(x, units, exact=True).numpy()
    np.testing.assert_allclose(points.mean(0), 0, atol=1e-9)
    assert points.std(0).max() < 1.01
    a = rng.normal(size=(2, 6))
    np.testing.assert_allclose(points @ (a @ units.back).T, (x - x.mean(0)) @ a.T, atol=1e-6 * np.abs(x).max())
    again = whitened(x * 1e3)
    np.testing.assert_allclose(again.forward * 1e3, units.forward, rtol=1e-6)


def test_units_of_a_constant_and_of_many_features(monkeypatch):
    assert np.array_equal(whitened(np.full((5, 2), 3.0)).forward, np.eye(2))
    monkeypatch.setattr("nearkin.estimators.linear.scaling.MOST_FEATURES", 3)
    x = np.random.default_rng(6).normal(size=(50, 4)) * 10
    units = whitened(x)
    assert isinstance(units, Units) and units.forward[0, 0] == pytest.approx(1 / x.std(), rel=1e-6) and units.forward[0, 1] == 0
