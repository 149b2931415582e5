"""The CPU engines against the equation written out on the full matrix in float64, value and gradient."""

import math
import subprocess
import sys
from typing import Any, NamedTuple, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nearkin.kernels import soft_neighbours
from nearkin.kernels.numba_tiles import NumbaTiles
from nearkin.kernels.soft_neighbours import Form
from nearkin.kernels.tiled import TorchTiles
from nearkin.kernels.work import Engine, Work

BOTH = pytest.mark.parametrize("kind", [TorchTiles, NumbaTiles])


def truth(n: int, m: int, positions: Tensor | None) -> Tensor:
    """(n, m) bool: which positions stand in each row, -1 for none."""
    table = torch.zeros(n, m, dtype=torch.bool)
    for i, row in enumerate([] if positions is None else positions.tolist()):
        for j in row:
            if j >= 0:
                table[i, j] = True
    return table


def log_sum(s: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """log of the sum of e^s over True, 0 where there is none; and whether there is any."""
    some = among.any(1)
    return torch.logsumexp(torch.where(some[:, None], s.masked_fill(~among, -math.inf), 0.0), 1), some


def oracle(work: Work, form: Form, temperature: float) -> tuple[Tensor, Tensor]:
    """Values and which queries are priced, from the whole matrix."""
    q = work.queries
    r = q if work.references is None else work.references
    n, m = len(q), len(r)
    s = (-(q[:, None] - r[None]).square().sum(2) if work.squared else q @ r.T) / temperature
    candidate = ~truth(n, m, work.skip)
    if work.targets is not None:
        cost = (work.targets[0].double()[:, None] - work.targets[1].double()[None]).square().sum(2)
        total, some = log_sum(s, candidate)
        chance = torch.exp(s.masked_fill(~candidate, -math.inf) - total[:, None])
        return (chance * cost).sum(1), some
    right = truth(n, m, work.listed)
    if work.span is not None:
        column = torch.arange(m)
        right = (work.span[:, :1] <= column) & (column < work.span[:, 1:])
    a, has_right = log_sum(s, candidate & right)
    b, has_wrong = log_sum(s, candidate & ~right)
    both = has_right & has_wrong
    if form == "log":
        return torch.where(both, torch.nn.functional.softplus(b - a), 0.0), has_right
    return torch.where(both, torch.sigmoid(b - a), has_wrong.double()), has_right | has_wrong


class Found(NamedTuple):
    values: Tensor
    priced: Tensor
    to_queries: Tensor
    to_references: Tensor | None


def found(engine: Engine | None, work: Work, form: Form, temperature: float = 0.7) -> Found:
    """Values, and gradients under a fixed random upstream, of an engine or (None) of the oracle in float64."""
    kind = torch.float64 if engine is None else work.queries.dtype
    queries = work.queries.detach().to(kind).clone().requires_grad_()
    references = None
    if work.references is not None:
        references = work.references.detach().to(kind).clone().requires_grad_(work.reference_gradient)
    live = work._replace(queries=queries, references=references)
    if engine is None:
        values, priced = oracle(live, form, temperature)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(soft_neighbours, "choose", lambda *_: engine)
            values, priced = soft_neighbours.soft_neighbours(live, form, temperature)
    upstream = torch.rand(len(queries), generator=torch.Generator().manual_seed(5), dtype=torch.float64) - 0.3
    wanted = [t for t in (queries, references) if t is not None and t.requires_grad]
    grads = torch.autograd.grad((values * upstream.to(kind)).sum() + 0 * queries.sum(), wanted, allow_unused=True)
    return Found(values.detach(), priced, grads[0], grads[1] if len(grads) > 1 else None)


def evaluated(engine: Engine, work: Work, form: Form, upstream: float = 1.0) -> tuple[Tensor, ...]:
    """Values and the queries' gradient, of the very tensors given."""
    queries = work.queries.detach().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(soft_neighbours, "choose", lambda *_: engine)
        values, _ = soft_neighbours.soft_neighbours(work._replace(queries=queries), form, 0.7)
    return values.detach(), *torch.autograd.grad(values, queries, torch.full_like(values, upstream))


def gap(a: Tensor, b: Tensor) -> float:
    """||a - b|| over ||b||; over 1, the size of an embedding, where b is smaller: sums that cancel keep its rounding."""
    return float((a.double() - b).norm() / b.norm().clamp_min(1))


def agree(mine: Found, theirs: Found, tolerance: float) -> None:
    assert torch.equal(mine.priced, theirs.priced)
    assert gap(mine.values, theirs.values) < tolerance
    assert gap(mine.to_queries, theirs.to_queries) < tolerance
    assert (mine.to_references is None) == (theirs.to_references is None)
    if mine.to_references is not None and theirs.to_references is not None:
        assert gap(mine.to_references, theirs.to_references) < tolerance


def runs(labels: Tensor, among: Tensor) -> Tensor:
    """(n, 2): where each label stands in sorted labels."""
    return torch.stack([torch.searchsorted(among, labels), torch.searchsorted(among, labels, right=True)], 1)


def draw(
    relation: str,
    references: str,
    *,
    n: int = 23,
    m: int = 17,
    d: int = 5,
    squared: bool = True,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Work:
    """Work with everything awkward in it: singleton and absent classes, twice-standing samples, ragged lists."""
    generator = torch.Generator().manual_seed(seed * 1_000_000 + n * 1000 + m)

    def pick(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    own = references == "own"
    m = n if own else m
    queries, others = torch.randn(n, d, generator=generator, dtype=dtype), torch.randn(m, d, generator=generator, dtype=dtype)
    skip = pick(-1, m, n, 3)
    if own:
        twin = torch.arange(n).roll(1)  # a sample that stands twice: it and its twin skip each other
        skip = torch.stack([torch.arange(n), torch.where(torch.arange(n) % 5 == 0, twin, -1), skip[:, 0]], 1)
    work = Work(queries, None if own else others, squared, skip=skip, reference_gradient=references == "separate")
    if relation == "span":
        labels = pick(0, 6, n).sort().values
        return work._replace(span=runs(labels, labels if own else pick(0, 6, m).sort().values))
    if relation == "lopsided":
        return work._replace(span=pick(0, m + 1, n, 2))
    if relation == "listed":
        return work._replace(listed=pick(-1, m, n, 4))
    targets = torch.randn(m, 2, generator=generator) + 2000
    return work._replace(targets=(targets if own else torch.randn(n, 2, generator=generator) + 2000, targets))


CASES = [("span", "log"), ("span", "expected"), ("lopsided", "log"), ("listed", "log"), ("listed", "expected"), ("targets", "expected")]


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
def test_points_may_lie_in_memory_as_they_like(kind: type, relation: str, form: Form) -> None:
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
def test_one_span_for_all_is_no_class_unless_it_holds_all(kind: type, edges: list[int]) -> None:
    """Everybody's right ones are the same few, so that "j is right for i" is not "i is right for j"."""
    work = draw("span", "own", n=5)._replace(span=torch.tensor([edges] * 5))
    agree(found(kind(block=2), work, "expected"), found(None, work, "expected"), 1e-5)


@BOTH
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_small_upstreams_keep_their_digits(kind: type, relation: str, form: Form) -> None:
    """The mean over many, divided once more for accumulation: pulls far below the least weight that counts."""
    work = draw(relation, "separate")
    whole, small = (evaluated(kind(block=8), work, form, size)[1] for size in (1.0, 2.0**-100))
    torch.testing.assert_close(small * 2.0**100, whole)


@BOTH
def test_targets_in_float64_keep_the_digits_that_float32_has_not(kind: type) -> None:
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
def test_queries_without_right_wrong_or_candidates(kind: type) -> None:
    queries = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    work = Work(queries, torch.randn(3, 3), True, span=torch.tensor([[0, 3], [0, 0], [0, 2], [1, 2]]))
    work = work._replace(skip=torch.tensor([[-1, -1, -1], [-1, -1, -1], [0, 1, 2], [0, 2, -1]]))
    log, expected = found(kind(block=2), work, "log"), found(kind(block=2), work, "expected")
    assert log.priced.tolist() == [True, False, False, True] and log.values.tolist() == [0, 0, 0, 0]
    assert expected.priced.tolist() == [True, True, False, True] and expected.values.tolist() == [0, 1, 0, 0]
    assert not log.to_queries.any() and not expected.to_queries.any()


@BOTH
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_one_point_alone(kind: type, relation: str, form: Form) -> None:
    work = draw(relation, "own", n=1)
    alone = found(kind(), work, form)
    assert not alone.priced.any() and not alone.values.any() and not alone.to_queries.any()


@BOTH
@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (3, 0)])
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_nobody_to_choose(kind: type, relation: str, form: Form, n: int, m: int) -> None:
    work = draw(relation, "separate", n=4, m=4)
    work = work._replace(queries=work.queries[:n], references=None if n == m else torch.randn(m, 5))
    empty = found(kind(), work, form)
    assert empty.values.shape == (n,) and not empty.values.any() and not empty.priced.any()
    assert empty.to_queries.shape == (n, 5) and not empty.to_queries.any()
    assert empty.to_references is None or (empty.to_references.shape == (m, 5) and not empty.to_references.any())


@pytest.mark.parametrize(
    ("queries", "references", "words"),
    [
        (torch.float16, None, "points are torch.float16; the kernels take float32 or float64, all alike: use .float()"),
        (torch.int64, None, "points are torch.int64; the kernels take float32 or float64"),
        (torch.float64, torch.float32, "points are torch.float64 and torch.float32; the kernels take float32 or float64, all alike"),
    ],
)
def test_other_kinds_of_numbers_are_refused_in_words(queries: torch.dtype, references: torch.dtype | None, words: str) -> None:
    others = None if references is None else torch.ones(2, 3, dtype=references)
    work = Work(torch.ones(2, 3, dtype=queries), others, True, span=torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(TypeError, match=words):
        soft_neighbours.soft_neighbours(work, "log", 1.0)


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
    monkeypatch.setattr(soft_neighbours, "choose", lambda *_: kind())
    with pytest.raises(torch.OutOfMemoryError, match="no memory left"):
        soft_neighbours.soft_neighbours(live, "log", 0.7).values.sum().backward()
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
        "crowded and lonely": x * torch.where(torch.arange(n)[:, None] % 2 == 0, 0.1, 2.0),  # far apart, yet not so far as to be float64
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
        ("crowded and lonely", 1e-5),
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
def test_points_of_any_size_have_their_value(kind: type, dtype: torch.dtype, size: float, relation: str, form: Form) -> None:
    """Whose affinities have no fraction left: everybody chooses the nearest. The gradient is rough, but of the right size and sense."""
    work = draw(relation, "own", dtype=dtype)
    work = work._replace(queries=work.queries * size)
    mine, theirs = found(kind(block=8), work, form), found(None, work, form)
    torch.testing.assert_close(mine.values.double(), theirs.values, rtol=1e-5, atol=0)
    slope, truth = mine.to_queries.double() / size, theirs.to_queries / size
    assert slope.isfinite().all() and 0.5 * truth.square().sum() <= (slope * truth).sum() <= 1.5 * truth.square().sum()
    assert truth.any() or not slope.any()


@BOTH
def test_points_beyond_all_numbers_break_the_loss(kind: type) -> None:
    work = draw("span", "own", dtype=torch.float64)
    mine = found(kind(), work._replace(queries=work.queries * 1e152), "log")
    assert mine.values.isnan().all() and mine.to_queries.isnan().all()


@BOTH
def test_broken_embeddings_break_the_loss(kind: type) -> None:
    work = draw("span", "own", n=40)
    work.queries[7, 1] = math.nan
    assert found(kind(), work, "log").values.isnan().any()
    assert found(kind(), work, "log").to_queries.isnan().all()


@BOTH
def test_second_derivatives_are_refused(kind: type) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(soft_neighbours, "choose", lambda *_: kind())
        work = draw("span", "own")
        work.queries.requires_grad_()
        values, _ = soft_neighbours.soft_neighbours(work, "log", 1.0)
        (gradient,) = torch.autograd.grad(values.sum(), work.queries, create_graph=True)
        with pytest.raises(RuntimeError, match="first derivatives only; for double backward build the objective with engine='dense'"):
            torch.autograd.grad(gradient.square().sum(), work.queries)


PROGRAM = """
import resource, torch
from nearkin.kernels.soft_neighbours import soft_neighbours
from nearkin.kernels.work import Work

print([name for name in ("numba", "triton") if name in sys.modules])

def step(n):
    x, edge = torch.randn(n, 64, requires_grad=True), torch.arange(n) // 1000 * 1000
    span = torch.stack([edge, (edge + 1000).clamp(max=n)], 1)
    soft_neighbours(Work(x, None, True, span=span, skip=torch.arange(n)[:, None]), "log", 1.0, engine="numba").values.mean().backward()
    return x.grad.isfinite().all()

step(1500)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert step(16_384)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.fixture(scope="module")
def told() -> list[str]:
    """What a process of its own says: the modules it has imported too early, and the megabytes a step has taken."""
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    return subprocess.run([sys.executable, "-c", path + PROGRAM], check=True, capture_output=True, text=True).stdout.splitlines()


def test_numba_and_triton_are_imported_late(told: list[str]) -> None:
    assert told[0] == "[]"


def test_memory_grows_with_points_not_pairs(told: list[str]) -> None:
    assert float(told[1]) < 120  # the full matrix would be 1,024


@BOTH
@pytest.mark.parametrize("other", [torch.float64, "meta"])
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_torchs_own_defaults_do_not_matter(kind: type, relation: str, form: Form, other: Any) -> None:
    """A caller may have told torch to make float64 tensors, or tensors elsewhere, where nothing else is said."""
    work = draw(relation, "separate")
    before = evaluated(kind(block=8), work, form)
    (torch.set_default_dtype if other is torch.float64 else torch.set_default_device)(other)
    try:
        after = evaluated(kind(block=8), work, form)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    assert torch.equal(before[0], after[0]) and torch.equal(before[1], after[1])


@BOTH
@pytest.mark.parametrize(("relation", "form"), CASES)
def test_autocast_around_either_pass_costs_no_digits(kind: type, relation: str, form: Form) -> None:
    work = draw(relation, "separate")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mine = found(kind(block=8), work, form)
    agree(mine, found(None, work, form), 1e-5)


@BOTH
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch.compile's own
def test_torch_compile_leaves_the_engines_alone(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Followed inside, numba's own compiler is what it would compile, and fail at."""
    monkeypatch.setattr(soft_neighbours, "choose", lambda *_: kind())
    work = draw("span", "own")

    def step(queries: Tensor) -> Tensor:
        return soft_neighbours.soft_neighbours(work._replace(queries=queries), "log", 1.0).values.sum()

    slopes = []
    for run in (step, torch.compile(step, backend="eager")):
        queries = work.queries.clone().requires_grad_()
        slopes += torch.autograd.grad(run(queries), queries)
    assert torch.equal(*slopes)
