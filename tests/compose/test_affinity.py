"""How near: every affinity by its definition, larger is nearer, and no digits lost far from the origin."""

import math

import pytest
import torch
from torch import Tensor

from nearkin.compose import value_checks
from nearkin.compose.affinity import (
    Affine,
    Affinity,
    Euclidean,
    InnerProduct,
    MinusDistance,
    Normalized,
    SquaredEuclidean,
    _spread,
    cosine,
    unit,
)
from nearkin.objectives import Contrastive

Q = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, -1.0]], dtype=torch.float64)
R = torch.tensor([[3.0, 4.0], [0.0, 2.0]], dtype=torch.float64)


def close(actual: Tensor, expected: object) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=actual.dtype))


def test_values_by_hand() -> None:
    squares = [[0.0, 13.0], [25.0, 4.0], [29.0, 10.0]]
    close(SquaredEuclidean(2.0)(Q, R), [[-s / 2 for s in row] for row in squares])
    close(Euclidean(2.0)(Q, R), [[-math.sqrt(s) / 2 for s in row] for row in squares])
    close(InnerProduct(2.0)(Q, R), [[12.5, 4.0], [0.0, 0.0], [-0.5, -1.0]])
    root = math.sqrt(2)
    close(cosine(0.5)(Q, R), [[2.0, 1.6], [0.0, 0.0], [-0.2 * root, -root]])
    close(Normalized(SquaredEuclidean())(Q[:1], R), [[0.0, -0.4]])
    close(Normalized(InnerProduct(), references=False)(Q[:1], R), [[5.0, 1.6]])
    head = Affine(2, 2)
    head.bias.data = torch.tensor([10.0, 0.5])
    close(head(Q, torch.tensor([[1.0, 2.0], [0.0, -1.0]]).double()).detach(), [[21.0, -3.5], [10.0, 0.5], [9.0, 1.5]])
    assert Affine(100, 9).bias.abs().max() <= 1 / 3 and Affine(100, 9).bias.std() > 0.1
    close(MinusDistance(lambda q, r: torch.cdist(q, r, p=1), 3.0)(Q, R), [[0.0, -15.0], [-21.0, -6.0], [-21.0, -12.0]])


def test_defaults_and_names() -> None:
    assert SquaredEuclidean().temperature == Euclidean().temperature == InnerProduct().temperature == 1.0
    assert cosine(0.3) == Normalized(InnerProduct(0.3), references=True) and cosine() == cosine(1.0)
    assert torch.equal(MinusDistance(torch.cdist)(Q, R), -torch.cdist(Q, R))
    assert torch.equal(SquaredEuclidean()(Q, R), 4 * SquaredEuclidean(4.0)(Q, R))


@pytest.mark.parametrize("affinity", [SquaredEuclidean(), Euclidean(), cosine(), InnerProduct(), Normalized(SquaredEuclidean())], ids=str)
def test_a_reference_is_never_nearer_than_the_point_itself(affinity: Affinity) -> None:
    x = unit(torch.randn(20, 6, generator=torch.Generator().manual_seed(0)).double())
    near = affinity(x, x)
    assert (near <= near.diagonal()[:, None] + 1e-12).all()
    torch.testing.assert_close(near, near.T)


@pytest.mark.parametrize("affinity", [SquaredEuclidean(), Euclidean(), cosine(), Normalized(SquaredEuclidean(0.3))], ids=str)
def test_gradients_agree_with_differences(affinity: Affinity) -> None:
    q, r = (t.clone().requires_grad_() for t in (Q[[0, 2]], torch.tensor([[1.0, 0.5], [-2.0, 2.0]], dtype=torch.float64)))
    assert torch.autograd.gradcheck(affinity, (q, r))
    if not isinstance(affinity, Euclidean):  # whose distances, cdist's like ours, have one derivative
        assert torch.autograd.gradgradcheck(affinity, (q, r))
    assert torch.autograd.grad(affinity(q, r.detach()).sum(), q)[0].shape == q.shape
    assert torch.autograd.grad(affinity(q.detach(), r).sum(), r)[0].shape == r.shape


def test_offsets_cost_no_digits() -> None:
    x = torch.randn(50, 16, generator=torch.Generator().manual_seed(0)) + 1000
    exact = -(x.double()[:, None] - x.double()).square().sum(2)
    error = (SquaredEuclidean()(x, x).double() - exact).abs().max()
    assert error < 1e-4, "without the shift it would be 10"
    torch.testing.assert_close(Euclidean()(x, x).double(), -(-exact).sqrt(), rtol=1e-5, atol=1e-6)


def test_a_shared_center_makes_blocks_agree_bit_for_bit() -> None:
    x = torch.randn(40, 8, generator=torch.Generator().manual_seed(0)) + 5
    center = x.mean(0)
    whole = SquaredEuclidean().around(center, x, x)
    assert torch.equal(whole, SquaredEuclidean()(x, x))
    halves = torch.cat([SquaredEuclidean().around(center, x, part) for part in (x[:20], x[20:])], 1)
    torch.testing.assert_close(halves, whole, rtol=1e-6, atol=1e-5)


def test_squares_never_dip_below_zero() -> None:
    x = 1000 * torch.randn(64, 7, generator=torch.Generator().manual_seed(0))
    near = SquaredEuclidean()(x, x)
    assert near.max() <= 0 and not near.diagonal().isnan().any()


def test_trap_37_near_duplicates_far_from_the_origin_keep_their_distance() -> None:
    base = 1000 * unit(torch.randn(4, 32, generator=torch.Generator().manual_seed(0)))
    x, y = torch.cat([base, base + 1e-2]), torch.arange(4).repeat(2)
    exact = -(x.double()[:, None] - x.double()).norm(dim=2)
    torch.testing.assert_close(Euclidean()(x, x).double(), exact, rtol=1e-5, atol=0)
    loss = Contrastive(1.0, normalize=False)
    assert float(loss(x, y)) == pytest.approx(float(loss(x.double(), y)), rel=1e-5)


@pytest.mark.parametrize("affinity", [SquaredEuclidean(), Euclidean(), cosine()], ids=str)
def test_the_gradient_is_finite_where_points_meet_and_at_zero(affinity: Affinity) -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]], requires_grad=True)
    affinity(x, x).sum().backward()
    assert torch.isfinite(x.grad).all() and x.grad.abs().max() < 20
    if isinstance(affinity, Euclidean):
        same = x[:1].detach().requires_grad_()
        affinity(same, x[1:2].detach()).sum().backward()
        assert not same.grad.any(), "no direction exists at distance zero"


def test_unit_rows_have_length_one_and_zero_stays() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-15, 0.0]])
    close(unit(x), [[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]])
    close(unit(x[0]), [0.6, 0.8])


def test_unit_rows_have_two_derivatives() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(unit, x) and torch.autograd.gradgradcheck(unit, x)
    zero = torch.zeros(2, 3, requires_grad=True)
    up = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 4.0]])
    assert torch.equal(torch.autograd.grad(unit(zero), zero, up)[0], up)


@pytest.mark.parametrize("n", [12, 80])
@pytest.mark.parametrize("affinity", [SquaredEuclidean(0.5), Euclidean(2.0), cosine()], ids=repr)
def test_queries_that_are_their_own_references_are_as_near_as_to_a_copy(affinity: Affinity, n: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 5, dtype=torch.float64, generator=generator)
    x[3], x[4], x[5] = x[2], x[2] + 1e-6, 40 * x[5]  # met, nearly met, far out
    up = torch.randn(n, n, dtype=torch.float64, generator=generator)
    x.requires_grad_()
    itself, copied = affinity(x, x), affinity(x, x.clone())
    torch.testing.assert_close(itself, copied, rtol=1e-9, atol=1e-9)
    gradients = [torch.autograd.grad(near, x, up)[0] for near in (itself, copied)]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-8)
    assert torch.isfinite(gradients[0]).all()


def test_a_distance_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the given distance returned shape \(3, 1\); it must be \(3, 2\): queries by references"):
        MinusDistance(lambda q, r: (q - r[0]).norm(dim=1, keepdim=True))(Q, R)


def by_differences(q: Tensor, r: Tensor) -> Tensor:
    return -torch.cdist(q, r, compute_mode="donot_use_mm_for_euclid_dist")


def many(kind: str) -> Tensor:
    """Enough points for the short way: scattered, with near and equal pairs among them, or most of them near one another."""
    x = torch.randn(300, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 50
    x[1], x[3], x[5] = x[0], x[2] + 1e-4, x[4] + 0.1
    if kind == "bunched":
        x[::2] = x[0] + 1e-3 * (x[::2] - 50)
    return x


@pytest.mark.parametrize("kind", ["scattered", "bunched"])
def test_many_distances_are_as_good_as_few(kind: str) -> None:
    assert (_spread(many("scattered"), many("scattered")) is None, _spread(many("bunched"), many("bunched")) is None) == (False, True)
    x, up = many(kind), torch.rand(300, 300, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exact, found = by_differences(x, x), Euclidean()(x, x)
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=0)
    assert not found.diagonal().any() and (found[0, 1] == 0 or kind == "bunched")
    torch.testing.assert_close(
        Euclidean()(x.float(), x.float()).double(), by_differences(x.float().double(), x.float().double()), rtol=3e-6, atol=0
    )
    for one_sided in (False, True):
        gradients = []
        for way in (by_differences, Euclidean()):
            q, r = x.clone().requires_grad_(), x.clone().requires_grad_(not one_sided)
            gradients.append(torch.autograd.grad(way(q, r), [q] if one_sided else [q, r], up))
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-11)


def test_many_distances_of_what_is_not_finite_show() -> None:
    x = many("scattered").float()
    x[7, 0] = torch.nan
    assert Euclidean()(x, x)[7, :7].isnan().all() and Euclidean()(x, x)[0, 1] == 0
    assert (Euclidean()(1e25 * many("scattered").float(), x[:300])[0, 8:] == -torch.inf).all()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_distances_on_a_device_that_is_not_read_are_exact_for_near_points_far_from_the_origin(
    own: bool, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_checks, "READ_FROM", frozenset())
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 8, generator=generator) + 100
    x[1], x[2], x[3] = x[0], x[0] * (1 + 1e-6), x[0] + 1e-4
    y, weight = torch.randn(20, 8, generator=generator) + 100, torch.randn(30, 30 if own else 20, generator=generator)
    found = []
    for kind in (torch.float32, torch.float64):
        mine = x.to(kind).requires_grad_()
        others = mine if own else y.to(kind).requires_grad_()
        affinity = Euclidean(temperature)(mine, others)
        slopes = torch.autograd.grad((affinity * weight).sum(), [mine] if own else [mine, others])
        found.append([affinity.detach().double(), *[slope.double() for slope in slopes]])
    for one, exact in zip(*found, strict=True):
        assert (one - exact).norm() <= 2e-7 * exact.norm()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("kind", ["far", "scattered", "bunched"])
def test_distances_of_a_compiled_graph_are_as_good_as_those_without_one(kind: str, own: bool) -> None:
    """No pair is near, a few are, most are: each of the three ways of `near_pairs.py`, and both gradients."""
    affinity, x, y = Euclidean(0.3), many("bunched" if kind == "bunched" else "scattered"), many("scattered")[:40] + 0.05
    x, y = (x, y) if kind != "far" else (x[6:66], y[:5] + 100)
    weight = torch.rand(len(x), len(x) if own else len(y), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch._dynamo.reset()
    found = []
    for call, dtype in ((torch.compile(affinity, fullgraph=True, backend="aot_eager"), torch.float32), (affinity, torch.float64)):
        mine = x.float().to(dtype).requires_grad_()
        others = mine if own else y.float().to(dtype).requires_grad_()
        near = call(mine, others)
        slopes = torch.autograd.grad((near * weight.to(dtype)).sum(), [mine] if own else [mine, others])
        found.append([near.detach(), *slopes])
    compiled, exact = found
    torch.testing.assert_close(compiled[0].double(), exact[0], rtol=3e-6, atol=0)
    for one, other in zip(compiled[1:], exact[1:], strict=True):
        assert (one - other).norm() <= 1e-6 * other.norm()
