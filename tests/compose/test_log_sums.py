"""Logs of sums over masks and of their ratios: values, both derivatives, and what counts for nothing."""

import math

import pytest
import torch

from nearkin.compose import log_sums
from nearkin.compose.log_sums import LEAST, log_ratio, logsumexp


@pytest.fixture(params=["cpu", "cuda"])
def either_way(request, monkeypatch):
    """What a CPU does, and, on a CPU, too, what CUDA does, where nothing is read back."""
    monkeypatch.setattr(log_sums, "may_read", lambda _: request.param == "cpu")


@pytest.mark.usefixtures("either_way")
def test_logsumexp_of_an_empty_row_has_no_gradient() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    out = logsumexp(x, torch.tensor([[True, True], [False, False]]))
    assert out.tolist() == pytest.approx([math.log(math.e + math.e**2), -math.inf])
    out[0].backward()
    assert torch.isfinite(x.grad).all() and not x.grad[1].any()


@pytest.mark.usefixtures("either_way")
def test_a_masked_sum_of_exponentials_has_two_derivatives():
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    mask = torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[2] = False

    def summed(x):
        return logsumexp(x, mask)[[0, 1, 3, 4]]

    torch.testing.assert_close(summed(x), x.masked_fill(~mask, -torch.inf).logsumexp(1)[[0, 1, 3, 4]])
    assert torch.autograd.gradcheck(summed, x) and torch.autograd.gradgradcheck(summed, x)
    whole = logsumexp(x, mask)
    assert whole[2] == -torch.inf
    (gradient,) = torch.autograd.grad(whole.sum(), x)
    assert (gradient[~mask] == 0).all() and gradient[2].eq(0).all()
    (again,) = torch.autograd.grad(logsumexp(x, mask).sum(), x, create_graph=True)
    torch.testing.assert_close(again, gradient)
    assert (logsumexp(x[:, :0], mask[:, :0]) == -torch.inf).all()


def test_what_lies_far_below_has_no_share():
    x = torch.tensor([[0.0, -68.0, -69.0, 50.0]], requires_grad=True)
    value = logsumexp(x, torch.tensor([[True, True, True, False]]))
    (gradient,) = torch.autograd.grad(value, x)
    assert value == 0 and gradient[0, 0] == 1 and 0 < gradient[0, 1] < 1e-29 and (gradient[0, 2:] == 0).all()
    assert logsumexp(torch.tensor([[0.0, torch.nan]]), torch.tensor([[True, True]])).isnan()
    assert logsumexp(torch.tensor([[0.0, torch.nan]]), torch.tensor([[True, False]])) == 0


def drawn(n: int, m: int, spread: float, seed: int = 0):
    """Affinities, a mask of those who may be chosen and graded shares, of which some stand outside the mask; no row is without either."""
    generator = torch.Generator().manual_seed(seed)
    x = spread * torch.randn(n, m, generator=generator, dtype=torch.float64)
    mask = torch.rand(n, m, generator=generator) < 0.6
    share = torch.rand(n, m, generator=generator, dtype=torch.float64) * (torch.rand(n, m, generator=generator) < 0.3)
    mask[:, 0], share[:, 1] = True, 1.0
    return x, mask, share


def by_loops(x, mask, share):
    sums = [
        [sum(math.exp(v) * w for v, w in zip(r, some, strict=True)) for r, some in zip(x.tolist(), by.tolist(), strict=True)]
        for by in (mask, share)
    ]
    return torch.tensor([math.log(a) - math.log(b) for a, b in zip(*sums, strict=True)], dtype=torch.float64)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("spread", [1.0, 20.0, 60.0])  # of the last, hardly a row is told by one matrix of exponentials
def test_a_ratio_of_sums_is_that_of_a_loop_and_has_two_derivatives(spread):
    x, mask, share = drawn(6, 9, spread)
    torch.testing.assert_close(log_ratio(x, mask, share), by_loops(x, mask, share), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda live: log_ratio(live, mask, share), x.requires_grad_())
    assert torch.autograd.gradgradcheck(lambda live: log_ratio(live, mask, share), x)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_a_share_far_below_the_nearest_is_told_exactly(dtype, close):
    far = torch.tensor([0.0, 10.0, 20.0, 30.0, 40.0, 41.0, 42.0, 60.0, 68.0, 70.0, 90.0, 200.0], dtype=dtype)
    x = torch.stack([torch.zeros_like(far), -far, -far - 1], 1).requires_grad_()
    mask, share = torch.ones(12, 3, dtype=torch.bool), torch.tensor([[0.0, 1.0, 0.5]], dtype=dtype).repeat(12, 1)
    values = log_ratio(x, mask, share)
    exact = far.double() + torch.log1p(torch.exp(-far.double()) * (1 + math.exp(-1))) - math.log1p(0.5 / math.e)
    torch.testing.assert_close(values.double(), exact, rtol=close, atol=close)
    (gradient,) = torch.autograd.grad(values.sum(), x)
    right = torch.tensor([1.0, 0.5 / math.e], dtype=torch.float64) / (1 + 0.5 / math.e)
    torch.testing.assert_close(gradient[4:, 1:].double(), -right.expand(8, 2), rtol=max(close, 1e-12), atol=10 * math.exp(-40))


@pytest.mark.usefixtures("either_way")
def test_rows_without_a_share_or_a_choice_and_what_neither_looks_at_have_no_gradient():
    x, mask, share = drawn(4, 5, 1.0)
    mask[1], share[2] = False, 0.0
    mask[3, 4], share[3, 4] = False, 0.0
    x[3, 4] = torch.nan
    values = log_ratio(x.requires_grad_(), mask, share)
    assert torch.isfinite(values).all() and values[1] == values[2] == 0
    (gradient,) = torch.autograd.grad(values.sum(), x)
    assert torch.isfinite(gradient).all() and not gradient[1:3].any() and gradient[3, 4] == 0 and gradient[0].any()
    with torch.no_grad():
        x[3, 0] = torch.nan
    assert log_ratio(x, mask, share).isnan().tolist() == [False, False, False, True]
    assert log_ratio(x[:, :0], mask[:, :0], share[:, :0]).tolist() == [0.0] * 4


def test_a_learned_share_has_a_gradient_and_the_cut_is_below_what_floats_notice():
    x, mask, share = drawn(4, 5, 1.0)
    assert torch.autograd.gradcheck(lambda some: log_ratio(x, mask, some + 0.5), share.requires_grad_())
    assert torch.finfo(torch.float64).eps > 1e5 * LEAST


def test_on_a_cpu_one_matrix_serves_both_sums_but_where_the_share_is_too_small(monkeypatch):
    x, mask, share = drawn(8, 40, 3.0)
    x[:, 2] = 1e6  # nobody looks at this one
    mask[:, 2], share[:, 2] = False, 0.0
    rows, careful = [], log_sums._beside
    monkeypatch.setattr(log_sums, "_beside", lambda x, *more: (rows.append(len(x)), careful(x, *more))[1])
    log_ratio(x, mask, share)
    assert rows == []
    mask[5], share[5] = True, 0.0
    share[5, 3], x[5, 3] = 1.0, -60.0
    values = log_ratio(x, mask, share)
    assert rows == [1]
    monkeypatch.setattr(log_sums, "may_read", lambda _: False)  # as on CUDA, where every row's sums stand side by side
    torch.testing.assert_close(log_ratio(x, mask, share), values)
    assert rows == [1, 8]
