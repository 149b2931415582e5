"""Cases of the Triton engine; run by `test_triton.py` with TRITON_INTERPRET=1. The oracle is all pairs in float64."""

import gc
import itertools
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import FunctionType
from typing import Any

import pytest
import torch
import triton.language as tl
from torch import Tensor
from triton.runtime import interpreter

from nearkin.compose.affinity import unit as directions
from nearkin.kernels import autograd as layer
from nearkin.kernels import wide_engine
from nearkin.kernels.class_order import by_class
from nearkin.kernels.contract import Work
from nearkin.kernels.cuda_graphs import paused
from nearkin.kernels.torch_tiles import TorchTiles
from nearkin.kernels.triton_class_order import compared
from nearkin.kernels.triton_engine import MOST_TARGETS, TritonEngine
from nearkin.kernels.triton_single_pairs import pair_lists
from nearkin.kernels.triton_tuning import NARROW, Tile, scheme_of
from nearkin.kernels.wide_engine import WideEngine

# Products of unused lanes may overflow in numpy, as they do silently on the GPU.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SMALL = Tile(16, 16, 4, 2)
# The interpreter multiplies tf32 operands in float32: the engine's own rounding of them is what shows.
ALLOWED = {"fp16": 6e-3, "tf32": 6e-3, "fp16x3-fp16": 4e-3, "fp16x3": 5e-6, "tf32x3": 5e-6}
N, M, D = 37, 41, 5
SOAK = pytest.mark.soak


@pytest.fixture(autouse=True, scope="module")
def _language_replaced_once() -> Iterator[None]:
    """Replace the functions of triton.language once.

    The interpreter does it anew in every call of every function and takes it back after every launch, which is nearly half of its time.
    Nothing else in this process needs the originals.
    """
    replace: Callable[[FunctionType], object] = interpreter._patch_lang
    replaced: set[tuple[str, ...]] = set()

    def once(function: FunctionType) -> object:
        seen = tuple(sorted({value.__name__ for value in function.__globals__.values() if value is tl or value is tl.core}))
        if seen not in replaced:
            replaced.add(seen)
            replace(function)
        return interpreter._LangPatchScope()  # nothing to take back

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", once)
        yield


def engine(scheme: str = "fp16x3", tile: Tile = SMALL) -> TritonEngine:
    return TritonEngine("highest", scheme, {"summaries": tile, "gradients": tile})


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def labels(n: int, classes: int, seed: int) -> Tensor:
    return torch.randint(0, classes, (n,), generator=torch.Generator().manual_seed(seed)).sort()[0]


def positions(n: int, k: int, m: int, seed: int) -> Tensor:
    return torch.randint(-1, m, (n, k), generator=torch.Generator().manual_seed(seed))


def span(mine: Tensor, among: Tensor) -> Tensor:
    return torch.stack([torch.searchsorted(among, mine), torch.searchsorted(among, mine, right=True)], 1)


def own(squared: bool = True, **what: object) -> Work:
    return Work(drawn(N, D, seed=0), None, squared)._replace(**what)


def separate(squared: bool = True, **what: object) -> Work:
    return Work(drawn(N, D, seed=0), drawn(M, D, seed=1), squared)._replace(**what)


ITSELF = torch.arange(N)[:, None]
MINE, THEIRS = labels(N, 2, seed=2), labels(M, 2, seed=3)  # two classes, so that some tiles are all positive and some all negative
Y, OTHER_Y = 100 + 5 * drawn(N, 2, seed=4), 100 + 5 * drawn(M, 2, seed=5)
SHAPES = {
    "classes, not itself": own(span=span(MINE, MINE), skip=ITSELF),
    "classes, itself too": own(span=span(MINE, MINE)),
    "many small classes": own(span=span(labels(N, 15, seed=6), labels(N, 15, seed=6)), skip=ITSELF),
    "skips that are not mutual": own(span=span(MINE, MINE), skip=positions(N, 2, N, seed=7)),
    "spans that are not mutual": own(span=span(MINE, MINE).flip(0), skip=ITSELF),
    "own lists": own(listed=positions(N, 3, N, seed=8), skip=ITSELF),
    "own targets": own(targets=(Y, Y), skip=ITSELF),
    "own, inner product": own(squared=False, span=span(MINE, MINE), skip=ITSELF),
    "own targets, inner product": own(squared=False, targets=(Y[:, :1], Y[:, :1]), skip=ITSELF),
    "references": separate(span=span(MINE, THEIRS)),
    "references, some skipped": separate(span=span(MINE, THEIRS), skip=positions(N, 2, M, seed=9)),
    "references, frozen": separate(span=span(MINE, THEIRS), reference_gradient=False),
    "references, lists": separate(listed=positions(N, 3, M, seed=10), skip=positions(N, 1, M, seed=11)),
    "references, targets": separate(targets=(Y, OTHER_Y), skip=positions(N, 1, M, seed=12)),
    "references, inner product": separate(squared=False, span=span(MINE, THEIRS)),
    "frozen lists, inner product": separate(squared=False, listed=positions(N, 1, M, seed=13), reference_gradient=False),
    "own lists, itself too": own(listed=positions(N, 1, N, seed=24)),
    "own lists that name one twice": own(listed=positions(N, 6, 9, seed=25), skip=positions(N, 3, N, seed=26)),
    "all lists are equal": own(listed=torch.tensor([[3, 20, -1]]).expand(N, 3), skip=ITSELF),
    "references, long lists": separate(listed=positions(N, 30, M, seed=27), skip=positions(N, 2, M, seed=28)),
    "references, all lists empty": separate(listed=torch.full((N, 2), -1), skip=positions(N, 1, M, seed=29)),
    "lists of length 0": own(listed=torch.empty(N, 0, dtype=torch.int64)),
}


QUICK = ("classes, not itself", "own lists", "own targets", "references, some skipped")


def some_quickly(*quick: str) -> list[object]:
    """All shapes; those that are not named run in `make soak`."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.soak) for name in SHAPES]


class Dense:
    """The contract of `Engine`, written out over all pairs."""

    def __init__(self, work: Work) -> None:
        self.work, self.q = work, work.queries.double()
        self.r = self.q if work.references is None else work.references.double()
        column = torch.arange(len(self.r))
        self.s = -(self.q[:, None] - self.r).square().sum(2) if work.squared else self.q @ self.r.T
        every_pair = torch.ones(len(self.q), len(self.r), dtype=torch.bool)
        self.candidate = every_pair if work.skip is None else (work.skip[:, :, None] != column).all(1)
        self.positive = ~every_pair
        if work.span is not None:
            self.positive = (column >= work.span[:, :1]) & (column < work.span[:, 1:])
        if work.listed is not None:
            self.positive = (work.listed[:, :, None] == column).any(1)
        if work.targets is not None:
            self.cost = (work.targets[0].double()[:, None] - work.targets[1].double()).square().sum(2)

    def log_sum(self, among: Tensor) -> Tensor:
        return torch.logsumexp(torch.where(among & self.candidate, self.s, -torch.inf) * math.log(2), 1) / math.log(2)

    def summaries(self) -> tuple[Tensor, Tensor]:
        if self.work.targets is None:
            return self.log_sum(self.positive), self.log_sum(~self.positive)
        first = self.log_sum(self.candidate)
        share = torch.where(self.candidate, torch.exp2(self.s - torch.where(first.isfinite(), first, 0.0)[:, None]), 0.0)
        return first, (share * self.cost).sum(1)

    def relative(self) -> tuple[Tensor, Tensor]:
        """The same, the log-sums without the query's own square length, as the engine gives them."""
        first, second = self.summaries()
        norm = self.q.square().sum(1) if self.work.squared else torch.zeros(len(self.q))
        return first + norm, second if self.work.targets else second + norm

    def gradients(self, first: Tensor, second: Tensor, pull: Tensor) -> list[Tensor]:
        first, second, pull = (x.double()[:, None] for x in (first, second, pull))
        if self.work.targets is None:
            weight = torch.where(self.positive, -pull * torch.exp2(self.s - first), pull * torch.exp2(self.s - second))
        else:
            weight = pull * torch.exp2(self.s - first) * (self.cost - second)
        weight = torch.where(self.candidate, weight, 0.0)
        to_q, to_r = weight @ self.r, weight.T @ self.q
        if self.work.squared:
            to_q, to_r = 2 * (to_q - weight.sum(1)[:, None] * self.q), 2 * (to_r - weight.sum(0)[:, None] * self.r)
        return [to_q + to_r] if self.work.references is None else [to_q, to_r] if self.work.reference_gradient else [to_q]


def assert_near(found: Tensor, truth: Tensor, allowed: float) -> None:
    infinite = truth.isinf()
    assert torch.equal(found.double()[infinite], truth[infinite])
    scale = truth[~infinite].norm().clamp(min=1e-9)
    assert float((found.double() - truth)[~infinite].norm() / scale) <= allowed


def gaps(queries: Tensor, references: Tensor, pairs: Dense, temperature: float) -> Tensor:
    """Log-sum of the negatives minus that of the positives, in natural units, from all differences."""
    affinity = -(queries[:, None] - references).square().sum(2) / temperature
    positive, negative = pairs.positive & pairs.candidate, ~pairs.positive & pairs.candidate
    return torch.logsumexp(affinity.masked_fill(~negative, -torch.inf), 1) - torch.logsumexp(affinity.masked_fill(~positive, -torch.inf), 1)


def finite(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """A missing summary replaced by the other one, or 0."""
    first = torch.where(first.isfinite(), first, torch.where(second.isfinite(), second, 0.0))
    return first, torch.where(second.isfinite(), second, first)


def assert_correct(work: Work, by: TritonEngine, allowed: float, steep: float | None = None) -> None:
    truth, summaries = Dense(work), by.summaries(work)
    for found, expected in zip(summaries, truth.relative(), strict=True):
        assert_near(found, expected, allowed)
    known = summaries[0].isfinite() & summaries[1].isfinite()
    pull = torch.where(known, 1e-4 * torch.rand(len(known)), 0.0)
    found = [x for x in by.gradients(work, *finite(*summaries), pull) if x is not None]
    expected = truth.gradients(*finite(*truth.summaries()), pull)
    assert len(found) == len(expected)
    for mine, exact in zip(found, expected, strict=True):
        assert_near(mine, exact, steep or allowed)


@pytest.mark.parametrize("name", some_quickly(*QUICK, "references, lists", "own lists that name one twice", "frozen lists, inner product"))
def test_every_shape_of_work_agrees_with_all_pairs(name):
    assert_correct(SHAPES[name], engine(), ALLOWED["fp16x3"])


@pytest.mark.parametrize(("mine", "theirs"), [(True, False), (False, True), (True, True)])
def test_pair_lists_equal_the_loops(mine, theirs):
    """Which pairs, in order; where each part begins; the largest number of one row in a tile. Empty places of a list do not count."""
    work, (tall, wide), each = SHAPES["own lists that name one twice"], (16, 8), 2
    found = pair_lists(work, mine, theirs, (tall, wide), each)
    pairs = []
    for kind, positions in enumerate((work.listed, work.skip)):
        for query, row in enumerate(positions.tolist()):
            pairs += [(query, other, kind) for other in row if mine and other >= 0]
            pairs += [(other, query, kind + 2) for other in row if theirs and other >= 0]
    pairs.sort()
    assert found.columns[: len(pairs)].tolist() == [column for _, column, _ in pairs]
    assert found.kinds[: len(pairs)].tolist() == [kind for *_, kind in pairs]
    tiles, blocks = -(-N // wide), -(-N // tall)
    for part, row in itertools.product(range(-(-tiles // each) + 1), range(N)):
        before = sum((r, c) < (row, min(part * each * wide, N)) for r, c, _ in pairs)
        assert int(found.begins[part, row]) == before
    for block, tile in itertools.product(range(blocks), range(tiles)):
        counts = Counter(r for r, c, _ in pairs if r // tall == block and c // wide == tile)
        assert int(found.most_pairs[block, tile]) == max(counts.values(), default=0)


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        ("fp16", "classes, not itself"),
        ("fp16", "references, lists"),
        ("tf32", "classes, not itself"),
        ("fp16x3-fp16", "classes, not itself"),
        ("tf32x3", "references, inner product"),
    ],
)
def test_every_way_of_rounding(scheme, name):
    assert_correct(SHAPES[name], engine(scheme), ALLOWED[scheme])


@pytest.mark.parametrize("precision", ["fast", "high", "highest"])
def test_the_precisions_with_their_own_tiles(precision):
    by = TritonEngine(precision)
    assert_correct(SHAPES["classes, not itself"], by, 6e-3 if precision != "highest" else 5e-6)


@pytest.mark.parametrize(
    "name",
    [
        "classes, not itself",
        "references, lists",
        *(pytest.param(name, marks=SOAK) for name in ("references, targets", "own lists that name one twice", "references, long lists")),
    ],
)
def test_split_columns_join_to_the_same(name):
    assert_correct(SHAPES[name], engine(tile=SMALL._replace(parts=3)), ALLOWED["fp16x3"])


def test_tiles_need_not_be_square():
    assert_correct(SHAPES["references, some skipped"], engine(tile=Tile(16, 32, 4, 2)), ALLOWED["fp16x3"])
    assert_correct(SHAPES["classes, not itself"], engine("fp16", tile=Tile(32, 16, 4, 2)), ALLOWED["fp16"])
    assert_correct(SHAPES["own lists"], engine(tile=Tile(32, 16, 4, 2, parts=2)), ALLOWED["fp16x3"])


@pytest.mark.soak
@pytest.mark.parametrize("name", ["own lists that name one twice", "references, long lists"])
def test_lists_in_tiles_that_are_not_square(name):
    assert_correct(SHAPES[name], engine(tile=Tile(16, 32, 4, 2)), ALLOWED["fp16x3"])
    assert_correct(SHAPES[name], engine(tile=Tile(32, 16, 4, 2, parts=2)), ALLOWED["fp16x3"])


@pytest.mark.parametrize(("scheme", "d"), [("fp16x3", 130), pytest.param("tf32", 130, marks=SOAK)])
def test_long_points_are_taken_in_chunks(scheme, d):
    work = own(span=span(MINE, MINE), skip=ITSELF)._replace(queries=0.2 * drawn(N, d, seed=14))
    assert_correct(work, engine(scheme, Tile(32, 32, 4, 2)), ALLOWED[scheme])
    assert_correct(work._replace(span=None, listed=positions(N, 3, N, seed=8)), engine(scheme, Tile(32, 32, 4, 2)), ALLOWED[scheme])


def test_far_points_two_exps():
    # Shifts of neighboring rows differ by hundreds of bits, so that no exp can be shared.
    assert_correct(own(span=span(MINE, MINE), skip=ITSELF, queries=40 * drawn(N, D, seed=15)), engine(), 1e-5, steep=5e-3)
    assert_correct(own(targets=(Y, Y), skip=ITSELF, queries=40 * drawn(N, D, seed=15)), engine(), 1e-5, steep=5e-3)
    assert_correct(SHAPES["own lists"]._replace(queries=40 * drawn(N, D, seed=15)), engine(), 1e-5, steep=5e-3)


def two_scales(z: Tensor) -> Tensor:
    return z * torch.where(torch.arange(len(z))[:, None] % 2 == 0, 0.1, 20.0)


@pytest.mark.parametrize(
    ("name", "steep"),
    [
        ("classes, not itself", 2e-5),
        ("own lists", 2e-5),
        pytest.param("own targets", 5e-5, marks=SOAK),
        ("references, some skipped", 1e-3),  # a far query's weights cancel to rounding, which is then multiplied by its length
        pytest.param("references, lists", 2e-5, marks=SOAK),
        pytest.param("references, targets", 1e-3, marks=SOAK),
    ],
)
def test_two_scales_at_once_keep_their_digits(name, steep):
    work, scale = SHAPES[name], math.sqrt(math.log2(math.e))
    references = None if work.references is None else two_scales(scale * drawn(M, 64, seed=22))
    assert_correct(work._replace(queries=two_scales(scale * drawn(N, 64, seed=21)), references=references), engine(), 1e-6, steep)


@pytest.mark.parametrize(
    ("name", "steep"),
    [
        ("classes, not itself", 1e-4),
        ("own lists", 5e-4),  # an exp for both directions of a pair is exact in one of them
        pytest.param("references, some skipped", 5e-5, marks=SOAK),
        pytest.param("references, lists", 1e-6, marks=SOAK),
    ],
)
def test_far_points_keep_their_digits(name, steep):
    work = SHAPES[name]
    references = None if work.references is None else 12 * drawn(M, 64, seed=22)
    assert_correct(work._replace(queries=12 * drawn(N, 64, seed=21), references=references), engine(), 1e-6, steep)


@pytest.mark.parametrize("move", [two_scales, lambda z: 10 * z, lambda z: z + 100], ids=["two scales", "far", "offset"])
def test_the_log_form_of_hard_points_through_autograd(move):
    work = SHAPES["classes, not itself"]._replace(queries=move(drawn(N, 64, seed=23)))
    live = work.queries.clone().requires_grad_()
    layer.soft_neighbors(work._replace(queries=live), "log", 1.0, engine="triton").values.mean().backward()
    exact = work.queries.double().requires_grad_()
    torch.nn.functional.softplus(gaps(exact, exact, Dense(work), 1.0), threshold=40).mean().backward()
    assert_near(live.grad, exact.grad, 2e-4)


def test_one_outlier_spoils_only_its_own_tiles():
    n = 16 * 3
    z = drawn(n, 2, seed=16)
    z[5] += 30
    mine = labels(n, 2, seed=17)
    work = Work(z, None, True, span=span(mine, mine), skip=torch.arange(n)[:, None])
    assert_correct(work, engine(), ALLOWED["fp16x3"], steep=1e-4)
    assert_correct(work._replace(span=None, listed=positions(n, 2, n, seed=30)), engine(), ALLOWED["fp16x3"], steep=1e-4)


@pytest.mark.parametrize("scheme", ["fp16", "fp16x3"])
def test_duplicates_stay_at_distance_zero(scheme):
    z = 30 * drawn(N, D, seed=18)[torch.arange(N) // 5 * 5]
    high = z.half().double()
    rounded = high if scheme == "fp16" else high + (z - high).half()
    first, second = (x.double() - rounded.square().sum(1) for x in engine(scheme).summaries(own(span=span(MINE, MINE), queries=z)))
    # Itself and up to four copies, at 2^0 each, and no other point within hundreds of bits.
    assert float(first.min()) > -1e-2 and float(first.max()) < math.log2(5) + 1e-2
    assert bool((torch.exp2(torch.logaddexp2(first, second)).round() >= 1).all())


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_fast_points_of_any_size_keep_their_direction(size):
    # Far outside fp16's range; the inner product of a large query and small references is of ordinary size.
    work = separate(squared=False, span=span(MINE, THEIRS))
    scaled = work._replace(queries=work.queries * size, references=work.references / size)
    assert_near(engine("fp16").summaries(scaled)[0], Dense(work).relative()[0], 6e-3)


@pytest.mark.parametrize(("name", "form"), [("references", "log"), ("references", "expected"), ("references, targets", "expected")])
def test_values_in_one_launch_are_those_of_plain_torch(name, form):
    odd = torch.tensor(list(itertools.product([-math.inf, math.nan, -1e3, 0.0, 1e-3, 3e38], repeat=2)))
    first, second = torch.cat([odd, 40 * drawn(200, 2, seed=31)]).unbind(1)
    mine, plain = (by.values(SHAPES[name], form, first.contiguous(), second.contiguous(), 0.7) for by in (engine(), TorchTiles()))
    for one, other in zip(mine, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=3e-7, atol=0, equal_nan=True)


def test_queries_without_positives_negatives_or_any_reference():
    spans = torch.tensor([[0, 0], [0, 3], [1, 2], [1, 2]])
    skip = torch.tensor([[-1, -1, -1], [-1, -1, -1], [0, 1, 2], [2, -1, -1]])
    work = Work(drawn(4, D, seed=19), drawn(3, D, seed=20), True, span=spans, skip=skip)
    assert_correct(work, engine(), ALLOWED["fp16x3"])
    first, second = engine().summaries(work)
    assert first[0] == -torch.inf and second[1] == -torch.inf and first[2] == second[2] == -torch.inf


@pytest.mark.parametrize("parts", [0, pytest.param(3, marks=SOAK)])
@pytest.mark.parametrize("value", [math.nan, pytest.param(math.inf, marks=SOAK)])
@pytest.mark.parametrize(
    "name",
    ["classes, not itself", "references, targets", *(pytest.param(name, marks=SOAK) for name in QUICK if name != "classes, not itself")],
)
def test_broken_embeddings_give_nan(name, value, parts, monkeypatch):
    work = SHAPES[name]
    side = "queries" if work.references is None else "references"
    broken = getattr(work, side).clone()
    broken[7, 1] = value
    monkeypatch.setattr(layer, "choose", lambda *_: engine(tile=SMALL._replace(parts=parts)))
    values, valid = layer.soft_neighbors(work._replace(**{side: broken}), "expected", 1.0)
    assert values[valid].isnan().any() and int(values.isnan().sum()) >= N - 2  # queries that skip it may be finite


@pytest.mark.parametrize("scheme", ["fp16x3", *(pytest.param(scheme, marks=SOAK) for scheme in sorted(ALLOWED) if scheme != "fp16x3")])
def test_the_nan_of_cuda_gives_nan(scheme, monkeypatch):
    work = SHAPES["references"]
    broken = work.queries.clone()
    broken[7, 1] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    monkeypatch.setattr(layer, "choose", lambda *_: engine(scheme))
    values, valid = layer.soft_neighbors(work._replace(queries=broken), "expected", 1.0)
    assert bool(valid[7]) and values.isnan().nonzero().flatten().tolist() == [7]


def test_no_queries_and_no_references():
    work = SHAPES["references"]
    none = work._replace(references=work.references[:0], span=torch.zeros_like(work.span))
    first, second = engine().summaries(none)
    assert bool((first == -torch.inf).all() and (second == -torch.inf).all())
    to_queries, to_references = engine().gradients(none, *(torch.zeros(N),) * 3)
    assert to_queries.shape == (N, D) and to_references.shape == (0, D) and not to_queries.any()
    no_queries = work._replace(queries=work.queries[:0], span=work.span[:0])
    assert engine().summaries(no_queries)[0].shape == (0,)
    assert engine().gradients(no_queries, *(torch.zeros(0),) * 3)[1].shape == (M, D)


def test_the_same_twice_to_the_last_bit():
    work = SHAPES["classes, not itself"]
    by = engine("fp16", SMALL._replace(parts=2))
    first, second = by.summaries(work)
    again = by.summaries(work)
    assert torch.equal(first, again[0]) and torch.equal(second, again[1])
    pull = torch.rand(N)
    assert torch.equal(by.gradients(work, first, second, pull)[0], by.gradients(work, first, second, pull)[0])


@pytest.mark.parametrize("form", ["log", "expected"])
def test_both_forms_through_autograd(form, monkeypatch):
    monkeypatch.setattr(layer, "choose", lambda *_: engine())
    work = SHAPES["references"]._replace(skip=None)
    q, r = work.queries.clone().requires_grad_(), work.references.clone().requires_grad_()
    layer.soft_neighbors(work._replace(queries=q, references=r), form, 0.7).values.sum().backward()
    p, o = work.queries.double().requires_grad_(), work.references.double().requires_grad_()
    gap = gaps(p, o, Dense(work), 0.7)
    (torch.nn.functional.softplus(gap) if form == "log" else torch.sigmoid(gap)).sum().backward()
    assert_near(q.grad, p.grad, 1e-5)
    assert_near(r.grad, o.grad, 1e-5)


def test_float64_and_many_targets_go_to_the_plain_engine(monkeypatch):
    calls = []
    monkeypatch.setattr(TorchTiles, "summaries", lambda _, work: calls.append(work) or (torch.zeros(N), torch.zeros(N)))
    work = SHAPES["classes, not itself"]
    engine().summaries(work._replace(queries=work.queries.double()))
    wide = torch.zeros(N, MOST_TARGETS + 1)
    engine().summaries(own(targets=(wide, wide)))
    assert len(calls) == 2


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 16 x 16 in slivers of 8, so that 37 points have pure tiles, mixed ones and edges."""
    for name, size in (("_ROWS", 16), ("_COLUMNS", 16), ("_SLIVER", 8), ("_TALL", 16)):
        monkeypatch.setattr(wide_engine, name, size)


@pytest.mark.parametrize("name", some_quickly(*QUICK))
def test_the_wide_engine_agrees_with_all_pairs(name, small_tiles):
    """By blocks of 16 x 16, of which own points visit those on and above the diagonal."""
    assert_correct(SHAPES[name], WideEngine("highest", 16 * 16 * 8), ALLOWED["fp16x3"])


@pytest.mark.parametrize("name", ["classes, not itself", "references, lists", "own targets"])
def test_the_wide_engine_rounds_to_16_bits(name, small_tiles):
    assert_correct(SHAPES[name], WideEngine("fast"), ALLOWED["fp16"])


@pytest.mark.parametrize("block", [32 * 48 * 8, 1 << 29])
@pytest.mark.parametrize("name", ["classes, not itself", *(pytest.param(one, marks=SOAK) for one in ("references, targets", "own lists"))])
def test_the_wide_engine_takes_blocks_of_any_shape(name, block, small_tiles, monkeypatch):
    monkeypatch.setattr(wide_engine, "_TALL", 32)
    assert_correct(SHAPES[name], WideEngine("highest", block), ALLOWED["fp16x3"])


@pytest.mark.parametrize(
    "name", ["classes, not itself", "references, lists", *(pytest.param(one, marks=SOAK) for one in ("own lists", "own targets"))]
)
def test_what_the_first_pass_kept_gives_the_same_gradient(name, small_tiles):
    """All products, where they take at most half of the memory of a block; nothing, where they take more."""
    work, pull = SHAPES[name], drawn(N, 1, seed=5)[:, 0]
    for by, keeps in ((WideEngine("highest"), True), (WideEngine("highest", 16 * 16 * 8), False)):
        summaries, kept = by.summaries(work), list[Any]()
        again = by.summaries(work._replace(kept=kept))
        assert bool(kept) == keeps
        found = (by.gradients(one, *summaries, pull) for one in (work, work._replace(kept=kept)))
        for mine, other in zip(*found, strict=True):
            assert (mine is None and other is None) or torch.equal(mine, other)
        assert all(map(torch.equal, summaries, again))


@pytest.fixture
def made(monkeypatch):
    """Weak references to the products that the wide engine computes."""
    product, found = wide_engine._product, list[Any]()

    def noted(a: Tensor, b: Tensor) -> Tensor:
        products = product(a, b)
        found.append(weakref.ref(products))
        return products

    monkeypatch.setattr(wide_engine, "_product", noted)
    return found


@pytest.mark.parametrize("name", ["classes, not itself", pytest.param("references", marks=SOAK)])
def test_a_part_of_a_recording_keeps_its_products_as_long_as_its_graph(name, small_tiles, made, monkeypatch):
    """Every other evaluation computes them again in each pass, and keeps none."""
    monkeypatch.setattr(layer, "choose", lambda *_: WideEngine("highest"))
    gc.disable()  # what is gone went without its help
    try:
        found = []
        for within, passes in ((nullcontext, 3), (paused, 1)):
            made.clear()
            live = [None if x is None else x.clone().requires_grad_() for x in SHAPES[name][:2]]
            leaves = [x for x in live if x is not None]
            with within():
                loss = layer.soft_neighbors(Work(*live, *SHAPES[name][2:]), "expected", 0.7).values.sum()
            blocks = len(made)
            assert [ref() is not None for ref in made] == [within is paused] * blocks
            first = torch.autograd.grad(loss, leaves, retain_graph=True)
            again = torch.autograd.grad(loss, leaves, create_graph=True)
            assert len(made) == passes * blocks > passes
            assert all(map(torch.equal, first, again))
            found.append([loss.detach(), *first])
            del loss, again
            assert [ref() for ref in made] == [None] * len(made)
        assert all(map(torch.equal, *found))
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["classes, not itself", "references"])
def test_gradients_add_up_in_pieces(name, small_tiles, monkeypatch):
    monkeypatch.setattr(wide_engine, "_PIECE", 16)
    monkeypatch.setattr(wide_engine, "_TALL", 48)
    assert_correct(SHAPES[name], WideEngine("highest"), ALLOWED["fp16x3"])


def test_hard_points_in_the_wide_engine(small_tiles):
    """Two scales, far points, a far center, and copies: the log-sums are kept in float64 between the passes."""
    work = SHAPES["classes, not itself"]
    for move, steep in ((two_scales, 2e-5), (lambda z: 12 * z, 1e-4), (lambda z: z[torch.arange(N) // 5 * 5], 1e-5)):
        assert_correct(work._replace(queries=move(drawn(N, 64, seed=21))), WideEngine("highest"), 1e-6, steep)
    first, second = WideEngine("highest").summaries(work._replace(queries=work.queries * torch.nan))
    assert bool((first.isnan() | second.isnan()).all())


def test_the_next_call_works_after_memory_ran_out_inside_a_block(small_tiles, monkeypatch):
    work, by, left = SHAPES["classes, not itself"], WideEngine("highest", 16 * 16 * 8), [2]
    expected, product = by.summaries(work), wide_engine._product

    def runs_out(a: Tensor, b: Tensor) -> Tensor:
        left[0] -= 1
        if left[0] == 0:
            raise torch.OutOfMemoryError("no memory left")
        return product(a, b)

    monkeypatch.setattr(wide_engine, "_product", runs_out)
    with pytest.raises(torch.OutOfMemoryError, match="no memory left"):
        by.summaries(work)
    for mine, other in zip(by.summaries(work), expected, strict=True):
        assert torch.equal(mine, other)


def test_high_takes_16_bits_above_128_dimensions():
    assert [scheme_of("high", d) for d in (128, 129)] == ["tf32", "fp16"]
    assert scheme_of("highest", 129) == "fp16x3" and NARROW["high"] == NARROW["fast"]


def test_the_width_chooses_the_engine():
    by = TritonEngine("highest")
    narrow, wide = (
        by.summaries(own(span=span(MINE, MINE), skip=ITSELF, queries=0.1 * drawn(N, NARROW["highest"] + more, seed=1))) for more in (0, 1)
    )
    assert narrow[0].dtype == torch.float32 and wide[0].dtype == torch.float64


def as_written(work: Work, temperature: float) -> Tensor:
    """The expected form of the caller's points, over all pairs in float64."""
    q = work.queries
    r = q if work.references is None else work.references
    q = directions(q) if work.unit_queries else q
    r = q if work.references is None else directions(r) if work.unit_references else r
    s = (-(q[:, None] - r).square().sum(2) if work.squared else q @ r.T) / temperature
    candidate = Dense(work).candidate
    if work.targets is not None:
        return (torch.softmax(s.masked_fill(~candidate, -torch.inf), 1) * Dense(work).cost).sum(1)
    positive = Dense(work).positive & candidate
    share = torch.softmax(s.masked_fill(~candidate, -torch.inf), 1)
    return 1 - (share * positive).sum(1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float32, marks=SOAK), pytest.param(torch.float16, marks=SOAK)])
@pytest.mark.parametrize("unit", [False, True], ids=["as they are", "unit"])
@pytest.mark.parametrize("kind", ["narrow", "wide"])
@pytest.mark.parametrize(
    "name",
    [
        "classes, not itself",
        "references, some skipped",
        *(
            pytest.param(name, marks=SOAK)
            for name in ("own lists", "own targets", "references, lists", "own, inner product", "references, inner product")
        ),
    ],
)
def test_points_of_the_caller_are_read_in_their_own_type(name, kind, unit, dtype, small_tiles, monkeypatch):
    """Values and gradients, which come in that type, are those of the same points in float64; a row of zeros among them."""
    work = SHAPES[name]
    queries, references = work.queries.to(dtype), None if work.references is None else work.references.to(dtype)
    if work.squared and not unit:
        queries = queries + 5  # centered as they are read
    queries[3] = 0
    work = work._replace(queries=queries, references=references, unit_queries=unit, unit_references=unit)
    monkeypatch.setattr(layer, "choose", lambda *_: engine() if kind == "narrow" else WideEngine("highest", 16 * 16 * 8))
    found, kinds = [], []
    for exact in (False, True):
        live = [x.detach().to(torch.float64 if exact else dtype).requires_grad_() for x in (queries, references) if x is not None]
        some = work._replace(queries=live[0], references=live[1] if len(live) > 1 else None)
        values = as_written(some, 0.5) if exact else layer.soft_neighbors(some, "expected", 0.5).values
        slopes = torch.autograd.grad(64 * values.double().sum(), live)
        kinds.append([slope.dtype for slope in slopes])
        found.append([values.detach().double(), *[slope.double() for slope in slopes]])
    assert kinds[0] == [dtype] * len(found[0][1:])
    allowed = max(2e-5, torch.finfo(dtype).eps)
    assert_near(found[0][0], found[1][0], 1e-5)
    for mine, true in zip(found[0][1:], found[1][1:], strict=True):
        assert_near(mine, true, allowed)


@pytest.mark.parametrize(("n", "classes"), [(1, 1), (37, 5), (530, 3), (100, 100)])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_comparing_all_labels_orders_them_as_sorting_does(n, classes, kind):
    mine = torch.randint(-1, classes, (n,), generator=torch.Generator().manual_seed(n)).to(kind)
    mine = mine * (1 << 40) if kind == torch.int64 else mine  # more than 32 bits
    for found, sorted_ones in zip(compared(mine), by_class(mine), strict=True):
        assert torch.equal(found.long(), sorted_ones)


@pytest.mark.parametrize("costs", [False, True])
def test_pulls_are_read_in_two_launches_as_plain_torch_would(costs):
    n = 300
    first, second, pull = (drawn(n, seed=seed).to(kind) for seed, kind in ((1, torch.float64), (2, torch.float64), (3, torch.float32)))
    pull[5], pull[290] = 0.0, -7.5
    targets = (drawn(n, 2, seed=4), drawn(M, 2, seed=5)) if costs else None
    work = Work(
        drawn(n, D, seed=0), drawn(M, D, seed=6), True, targets=targets, span=None if costs else torch.zeros(n, 2, dtype=torch.int64)
    )
    mine, theirs, same, size = wide_engine._pulls(work, first, second, pull)
    unreachable = torch.where(pull == 0, 3e38, first)
    assert torch.equal(mine[0], unreachable.float()) and torch.equal(mine[1], (unreachable - unreachable.float()).float())
    reached = second if costs else torch.where(pull == 0, 3e38, second)
    assert torch.equal(theirs.double().sum(0).float(), reached.float()) and same is pull
    largest = 2 * 7.5
    if costs:
        both = torch.cat(targets)
        largest *= float((both.max(0).values - both.min(0).values).square().sum())
    assert 2**13 <= largest * float(size) < 2**14 and math.log2(float(size)) % 1 == 0
