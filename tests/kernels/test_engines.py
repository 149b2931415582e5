"""The CPU engines against the equation written out on the full matrix in float64, value and gradient."""

import math
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nearkin.kernels import autograd
from nearkin.kernels.contract import Form, Work
from nearkin.kernels.numba_tiles import NumbaTiles
from nearkin.kernels.torch_tiles import TorchTiles
from tests.kernels.full_matrix import BOTH, CASES, Found, agree, draw, evaluated, found, runs


@BOTH
@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("references", ["own", "separate", "frozen"])
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_equals_the_full_matrix(kind: type, relation: str, form: Form, references: str, squared: bool) -> None:
    work = draw(relation, references, squared=squared)
    agree(found(kind(block=8), work, form), found(None, work, form), 1e-5)


@BOTH
@pytest.mark.parametrize("references", ["own", "separate"])
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_float64_is_exact_to_rounding(kind: type, relation: str, form: Form, references: str) -> None:
    work = draw(relation, references, dtype=torch.float64)
    agree(found(kind(block=8), work, form), found(None, work, form), 1e-10)


@BOTH
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_points_may_have_any_memory_layout(kind: type, relation: str, form: Form) -> None:
    work = draw(relation, "separate")
    within = torch.randn(46, 11)  # every other row and column of something larger; and a transposed one
    within[::2, 1::2] = work.queries
    theirs = cast(Tensor, work.references).T.contiguous().T
    turned = work._replace(queries=within[::2, 1::2], references=theirs, skip=cast(Tensor, work.skip).T.contiguous().T)
    assert not turned.queries.is_contiguous() and not theirs.is_contiguous()
    for one, two in zip(evaluated(kind(block=8), turned, form), evaluated(kind(block=8), work, form), strict=True):
        torch.testing.assert_close(one, two)


@given(
    st.sampled_from([TorchTiles, NumbaTiles]), st.sampled_from(CASES), st.sampled_from(["own", "separate"]),
    st.integers(1, 8), st.integers(1, 8), st.integers(1, 3), st.integers(1, 9), st.booleans(),
)  # fmt: skip
def test_any_size_and_block(kind: type, case: tuple[str, Form], references: str, n: int, m: int, d: int, block: int, squared: bool) -> None:
    work = draw(case[0], references, n=n, m=m, d=d, squared=squared)
    agree(found(kind(block=block), work, case[1]), found(None, work, case[1]), 3e-5)


@BOTH
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_blocks_and_threads_do_not_matter(kind: type, relation: str, form: Form) -> None:
    work = draw(relation, "own", n=20)
    whole = found(kind(block=1000), work, form)
    for block in (1, 7):
        part = found(kind(block=block), work, form)
        agree(part, Found(*(None if t is None else t.double() if t.is_floating_point() else t for t in whole)), 1e-5)  # type: ignore[arg-type]
    if kind is NumbaTiles:
        agree(found(NumbaTiles(block=6, threads=3), work, form), found(None, work, form), 1e-5)


@BOTH
@pytest.mark.parametrize("edges", [[1, 3], [0, 3], [2, 5], [0, 0]])
def test_one_span_for_all_is_not_a_class_unless_it_holds_all(kind: type, edges: list[int]) -> None:
    """All queries share the same few positives, so that "j is positive for i" is not "i is positive for j"."""
    work = draw("span", "own", n=5)._replace(span=torch.tensor([edges] * 5))
    agree(found(kind(block=2), work, "expected"), found(None, work, "expected"), 1e-5)


@BOTH
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_small_upstreams_keep_their_digits(kind: type, relation: str, form: Form) -> None:
    """A mean over many queries, divided again for accumulation: pulls far below the smallest weight that is kept."""
    work = draw(relation, "separate")
    whole, small = (evaluated(kind(block=8), work, form, size)[1] for size in (1.0, 2.0**-100))
    torch.testing.assert_close(small * 2.0**100, whole)


@BOTH
def test_targets_in_float64_keep_more_digits_than_float32(kind: type) -> None:
    work = draw("targets", "separate")
    mine, theirs = (targets.double() - 2000 + 1.7e9 for targets in cast(tuple[Tensor, Tensor], work.targets))  # seconds since 1970
    work = work._replace(targets=(mine, theirs))
    agree(found(kind(block=8), work, "expected"), found(None, work, "expected"), 1e-5)


@BOTH
def test_two_runs_are_bit_equal(kind: type) -> None:
    work = draw("span", "own", n=200)
    engine = NumbaTiles(block=32, threads=2) if kind is NumbaTiles else TorchTiles(block=32)
    one, two = found(engine, work, "log"), found(engine, work, "log")
    assert torch.equal(one.values, two.values) and torch.equal(one.to_queries, two.to_queries)


@BOTH
def test_queries_without_positives_negatives_or_candidates(kind: type) -> None:
    queries = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    work = Work(queries, torch.randn(3, 3), True, span=torch.tensor([[0, 3], [0, 0], [0, 2], [1, 2]]))
    work = work._replace(skip=torch.tensor([[-1, -1, -1], [-1, -1, -1], [0, 1, 2], [0, 2, -1]]))
    log, expected = found(kind(block=2), work, "log"), found(kind(block=2), work, "expected")
    assert log.valid.tolist() == [True, False, False, True] and log.values.tolist() == [0, 0, 0, 0]
    assert expected.valid.tolist() == [True, True, False, True] and expected.values.tolist() == [0, 1, 0, 0]
    assert not log.to_queries.any() and not expected.to_queries.any()


@BOTH
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_one_point_alone(kind: type, relation: str, form: Form) -> None:
    work = draw(relation, "own", n=1)
    alone = found(kind(), work, form)
    assert not alone.valid.any() and not alone.values.any() and not alone.to_queries.any()


@BOTH
@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (3, 0)])
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_no_queries_or_no_references(kind: type, relation: str, form: Form, n: int, m: int) -> None:
    work = draw(relation, "separate", n=4, m=4)
    work = work._replace(queries=work.queries[:n], references=None if n == m else torch.randn(m, 5))
    empty = found(kind(), work, form)
    assert empty.values.shape == (n,) and not empty.values.any() and not empty.valid.any()
    assert empty.to_queries.shape == (n, 5) and not empty.to_queries.any()
    assert empty.to_references is None or (empty.to_references.shape == (m, 5) and not empty.to_references.any())


@pytest.mark.parametrize(
    ("queries", "references", "words"),
    [
        (
            torch.float8_e5m2,
            None,
            "points are torch.float8_e5m2; the kernels take float32, float64, bfloat16 or float16, all alike: use .float()",
        ),
        (torch.int64, None, "points are torch.int64; the kernels take float32, float64"),
        (torch.float64, torch.float32, "points are torch.float64 and torch.float32; the kernels take float32, float64"),
        (torch.float16, torch.float32, "points are torch.float16 and torch.float32; the kernels take float32, float64"),
    ],
)
def test_other_types_are_refused(queries: torch.dtype, references: torch.dtype | None, words: str) -> None:
    others = None if references is None else torch.ones(2, 3, dtype=references)
    work = Work(torch.ones(2, 3, dtype=queries), others, True, span=torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(TypeError, match=words):
        autograd.soft_neighbors(work, "log", 1.0)


@BOTH
@pytest.mark.parametrize("which", ["summaries", "gradients"])
def test_running_out_of_memory_in_either_pass_changes_nothing(kind: type, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work = draw("span", "separate", n=40)
    before, points = found(kind(), work, "log"), [work.queries.clone(), cast(Tensor, work.references).clone()]
    real = getattr(kind, which)

    def starved(*given: Any) -> None:
        real(*given)
        raise torch.OutOfMemoryError("no memory left")

    monkeypatch.setattr(kind, which, starved)
    live = work._replace(queries=work.queries.clone().requires_grad_())
    monkeypatch.setattr(autograd, "choose", lambda *_: kind())
    with pytest.raises(torch.OutOfMemoryError, match="no memory left"):
        autograd.soft_neighbors(live, "log", 0.7).values.sum().backward()
    assert live.queries.grad is None and torch.equal(work.queries, points[0]) and torch.equal(cast(Tensor, work.references), points[1])
    monkeypatch.setattr(kind, which, real)
    after = found(kind(), work, "log")
    assert torch.equal(after.values, before.values) and torch.equal(after.to_queries, before.to_queries)


def hard_data(name: str, n: int = 200, d: int = 64) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, d, generator=generator)
    return {
        "plain": x,
        "far": 10 * x,
        "duplicates": x[: n // 5].repeat(5, 1)[torch.randperm(n, generator=generator)],
        "two scales": x * torch.where(torch.arange(n)[:, None] % 2 == 0, 0.1, 20.0),
        "crowded and lonely": x * torch.where(torch.arange(n)[:, None] % 2 == 0, 0.1, 2.0),  # far, but not far enough for float64
        "offset": x + 100,
        "wide": torch.randn(n, 200, generator=generator),
    }[name]


@BOTH
@pytest.mark.parametrize("relation", ["span", "targets"])
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("plain", 1e-5),
        ("far", 5e-4),
        ("duplicates", 1e-5),
        ("two scales", 1e-5),
        ("crowded and lonely", 2e-5),  # the bound that layout.FAR promises; the rounding depends on the processor
        ("offset", 1e-5),
        ("wide", 5e-5),
    ],
)
def test_hard_data_in_float32(kind: type, name: str, tolerance: float, relation: str) -> None:
    x = hard_data(name)
    labels = torch.arange(len(x)) // 20
    work = Work(x, None, True, span=runs(labels, labels), skip=torch.arange(len(x))[:, None])
    if relation == "targets":
        targets = torch.randn(len(x), 1, generator=torch.Generator().manual_seed(2))
        work = work._replace(span=None, targets=(targets, targets))
    form: Form = "log" if relation == "span" else "expected"
    mine, theirs = found(kind(block=64), work, form, 1.0), found(None, work, form, 1.0)
    assert mine.values.isfinite().all() and mine.to_queries.isfinite().all()
    agree(mine, theirs, tolerance)


@BOTH
@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e9), (torch.float32, 1e16), (torch.float64, 1e16), (torch.float64, 1e147)])
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_points_of_any_size_have_a_correct_value(kind: type, dtype: torch.dtype, size: float, relation: str, form: Form) -> None:
    """Affinities have no fraction left: each query chooses its nearest. The gradient is rough, but its size and direction are right."""
    work = draw(relation, "own", dtype=dtype)
    work = work._replace(queries=work.queries * size)
    mine, theirs = found(kind(block=8), work, form), found(None, work, form)
    torch.testing.assert_close(mine.values.double(), theirs.values, rtol=1e-5, atol=0)
    slope, truth = mine.to_queries.double() / size, theirs.to_queries / size
    assert slope.isfinite().all() and 0.5 * truth.square().sum() <= (slope * truth).sum() <= 1.5 * truth.square().sum()
    assert truth.any() or not slope.any()


@BOTH
def test_points_that_overflow_float64_give_nan(kind: type) -> None:
    work = draw("span", "own", dtype=torch.float64)
    mine = found(kind(), work._replace(queries=work.queries * 1e152), "log")
    assert mine.values.isnan().all() and mine.to_queries.isnan().all()


@BOTH
def test_broken_embeddings_give_nan(kind: type) -> None:
    work = draw("span", "own", n=40)
    work.queries[7, 1] = math.nan
    assert found(kind(), work, "log").values.isnan().any()
    assert found(kind(), work, "log").to_queries.isnan().all()


class _NoGradient(torch.autograd.Function):
    """Takes values and returns no gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.sum()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> None:
        return None


@BOTH
def test_no_upstream_gradient_gives_none(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "choose", lambda *_: kind())
    queries = draw("span", "own").queries.requires_grad_()
    values, _ = autograd.soft_neighbors(draw("span", "own")._replace(queries=queries), "log", 1.0)
    _NoGradient.apply(values).backward()  # type: ignore[no-untyped-call]
    assert queries.grad is None


@BOTH
def test_second_derivatives_are_refused(kind: type) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(autograd, "choose", lambda *_: kind())
        work = draw("span", "own")
        work.queries.requires_grad_()
        values, _ = autograd.soft_neighbors(work, "log", 1.0)
        (gradient,) = torch.autograd.grad(values.sum(), work.queries, create_graph=True)
        with pytest.raises(RuntimeError, match="first derivatives only; for double backward build the objective with engine='dense'"):
            torch.autograd.grad(gradient.square().sum(), work.queries)
