"""torch.func, torch.export and double backward: each objective works, or says in words that it does not."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.catalog import Case, batch, cases
from nearkin.compose import Euclidean, Points, routes
from nearkin.objectives import NCA, Contrastive, NCARegression, NearestClassMean, PrecisionAtK, Softmax, Triplet

every = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
each = pytest.mark.parametrize("case", cases(options=False), ids=lambda case: case.name)
CONSTANT = ("Circle", "NeighborTargets")  # weights, or a teacher's views, are part of its gradient, and not differentiated


def slope(call: Any, x: Tensor) -> Tensor:
    live = x.detach().clone().requires_grad_()
    torch.manual_seed(3)  # distance-weighted triplets draw
    (found,) = torch.autograd.grad(call(live), live)
    return found


@pytest.mark.parametrize("case", [case for case in cases() if case.name not in CONSTANT], ids=lambda case: case.name)
@pytest.mark.parametrize("n", [10, pytest.param(72, marks=pytest.mark.soak)])
def test_double_backward_is_right(case: Case, n: int) -> None:
    """The directional derivative of the gradient against its difference quotient; from 64 rows on distances come by products."""
    objective = case.build().double()
    some = batch(objective.supervision, n, dtype=torch.float64)
    x, direction = some.embeddings.requires_grad_(), batch("ids", n + 1, dtype=torch.float64).embeddings[:n]

    def call(live: Tensor) -> Tensor:
        return some._replace(embeddings=live).loss(objective)

    torch.manual_seed(3)
    (first,) = torch.autograd.grad(call(x), x, create_graph=True)
    if first.requires_grad:
        (second,) = torch.autograd.grad((first * direction).sum(), x, allow_unused=True, materialize_grads=True)
    else:
        second = torch.zeros_like(x)
    step = 1e-6
    truth = (slope(call, x + step * direction) - slope(call, x - step * direction)) / (2 * step)
    torch.testing.assert_close(second, truth, rtol=1e-4, atol=1e-7)


def test_double_backward_of_a_larger_batch() -> None:
    """From 8,192 pairs on distances come by products of matrices; there the second derivative once was silently wrong."""
    for name in ("Contrastive", "LiftedStructure", "NearestClassMean"):
        test_double_backward_is_right(next(case for case in cases(options=False) if case.name == name), 100)


@pytest.mark.parametrize("make", [NCA, lambda: NCA("expected"), lambda: NCA(metric="cosine"), NCARegression])
def test_engines_that_stream_refuse_and_the_matrix_is_right(make: Any) -> None:
    for engine in ("torch", "numba", "auto"):
        objective = make()
        objective.engine = engine
        some = batch(objective.supervision, 600)
        x = some.embeddings.requires_grad_()
        (first,) = torch.autograd.grad(some.loss(objective), x, create_graph=True)
        with pytest.raises(RuntimeError, match="first derivatives only; for double backward build the objective with engine='dense'"):
            first.sum().backward()


@pytest.mark.parametrize("n", [5, 90])
def test_gradgradcheck_of_distances(n: int) -> None:
    """torch's own check, in both arguments, with points that meet: there the gradient is zero by definition."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 3, dtype=torch.float64, generator=generator, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradgradcheck(Euclidean(), (a, b), fast_mode=True)
    assert torch.autograd.gradcheck(Euclidean(), (a, b), fast_mode=True)
    twins = a.detach().clone()
    twins[1] = twins[0]
    twins.requires_grad_()
    (first,) = torch.autograd.grad(Euclidean()(twins, twins).sum(), twins, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), twins)
    assert first.isfinite().all() and second.isfinite().all()


@every
@pytest.mark.parametrize("many", [0, 2**40], ids=["streamed", "small"])
def test_torch_func_grad_is_the_gradient(case: Case, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MANY_ON_CPU", many)
    monkeypatch.setattr(routes, "MANY_PAIRS", many)
    monkeypatch.setattr(routes, "MANY_ON_CUDA", many)
    objective = case.build()
    some = batch(objective.supervision, 24)

    def call(live: Tensor) -> Tensor:
        torch.manual_seed(3)
        return some._replace(embeddings=live).loss(objective)

    torch.testing.assert_close(torch.func.grad(call)(some.embeddings).detach(), slope(call, some.embeddings))


@each
def test_vmap_is_refused_in_words(case: Case) -> None:
    objective = case.build()
    some = batch(objective.supervision, 24)
    twice = torch.stack([some.embeddings, some.embeddings])

    def call(x: Tensor) -> Tensor:
        return some._replace(embeddings=x).loss(objective)

    for function in (call, torch.func.grad(call)):
        with pytest.raises(RuntimeError, match="torch.func.vmap does not work on objectives: each compares the rows of one batch; call it"):
            torch.func.vmap(function, randomness="different")(twice)


class Exported(nn.Module):
    def __init__(self, objective: nn.Module) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, x: Tensor, labels: Tensor | None, ids: Tensor) -> Tensor:
        found: Tensor = self.objective(x, labels, ids=ids)
        return found


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.name in ("NCA", "Triplet", "CenterLoss") else pytest.mark.soak) for case in cases()],
    ids=lambda case: case.name,
)
def test_torch_export_gives_a_program_with_the_same_value(case: Case) -> None:
    """And with the same gradient, or one that is refused in words."""
    objective = case.build()
    some = batch(objective.supervision, 24)
    live = some.embeddings.detach().requires_grad_()
    program = torch.export.export(Exported(objective), (live, some.labels, some.ids)).module()
    torch.manual_seed(3)
    found = program(live, some.labels, some.ids)
    torch.manual_seed(3)
    expected = objective(live, some.labels, ids=some.ids)
    torch.testing.assert_close(found, expected)
    (slope,), refused = torch.autograd.grad(expected, live), ""
    try:
        torch.testing.assert_close(torch.autograd.grad(found, live)[0], slope)
    except RuntimeError as error:
        refused = str(error)
    assert not refused or "an exported objective has values and no gradients" in refused


def test_an_exported_program_checks_its_values() -> None:
    some = batch("classes", 24)
    program = torch.export.export(Exported(NCA()), (some.embeddings, some.labels, some.ids)).module()
    with pytest.raises(ValueError, match="embeddings contains NaN or infinity"):
        program(some.embeddings * torch.nan, some.labels, some.ids)
    assert program(some.embeddings, some.labels, some.ids).isfinite()


def test_one_side_alone_may_need_a_gradient() -> None:
    some = batch("classes", 24)
    others = batch("classes", 30)
    for objective in (NCA(), NCA(engine="torch"), NCA(engine="numba"), Contrastive(normalize=False)):
        for mine, theirs in ((True, False), (False, True), (True, True)):
            q, r = some.embeddings.clone().requires_grad_(mine), others.embeddings.clone().requires_grad_(theirs)
            references = Points(r, others.labels, others.ids + 100)
            loss = objective(q, some.labels, ids=some.ids, references=references)
            loss.backward()
            assert (q.grad is not None) == mine and (r.grad is not None) == theirs
    live = some.embeddings.clone().requires_grad_()
    NearestClassMean(torch.eye(4, 16))(live, some.labels).backward()
    assert live.grad is not None and live.grad.any()


def test_parameters_of_functional_call_are_taken_and_leave_no_trace() -> None:
    """As in meta-learning: no warning about gradients of tensors that are no leaves, and the objective can be copied afterwards."""
    objective, some = Softmax(4, 16), batch("classes", 24)
    expected = some.loss(objective)

    def call(vectors: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(objective, {"references.vectors": vectors}, (some.embeddings, some.labels))
        return found

    vectors = objective.references.vectors.detach().clone().requires_grad_()
    loss = call(vectors * 1.0)
    (by_graph,) = torch.autograd.grad(loss, vectors)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.func.grad(call)(vectors).detach(), by_graph)
    torch.testing.assert_close(some.loss(pickle.loads(pickle.dumps(copy.deepcopy(objective)))), expected)


@pytest.mark.parametrize("make", [lambda: PrecisionAtK(3), NCA, Triplet])
def test_counts_after_torch_func_can_be_read_and_copied(make: Any) -> None:
    objective, some = make(), batch("classes", 24)
    expected = some.loss(objective), repr(objective.last)
    torch.func.grad(lambda x: some._replace(embeddings=x).loss(objective))(some.embeddings)
    assert repr(objective.last) == expected[1]
    torch.testing.assert_close(some.loss(pickle.loads(pickle.dumps(copy.deepcopy(objective)))), expected[0])


def test_forward_mode_is_refused_in_words() -> None:
    some = batch("classes", 24)
    with pytest.raises(RuntimeError, match=r"no derivatives in forward mode, so torch.func.jvp, .* use torch.func.grad or vjp"):
        torch.func.jvp(lambda x: some._replace(embeddings=x).loss(Triplet()), (some.embeddings,), (some.embeddings,))
