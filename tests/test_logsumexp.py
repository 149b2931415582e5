"""The log of a sum over a mask: its value, both derivatives, and what counts for nothing."""

import math

import pytest
import torch

from nearkin.criterion import logsumexp


def test_logsumexp_of_an_empty_row_has_no_gradient() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    out = logsumexp(x, torch.tensor([[True, True], [False, False]]))
    assert out.tolist() == pytest.approx([math.log(math.e + math.e**2), -math.inf])
    out[0].backward()
    assert torch.isfinite(x.grad).all() and not x.grad[1].any()


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
