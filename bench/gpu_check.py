"""Work of every shape, and the float64 answers that the GPU engine is held against."""

import math
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nearkin.kernels.contract import Work, sizes
from nearkin.kernels.triton_engine import TritonEngine
from nearkin.kernels.triton_tuning import SCHEMES, Pass, Tile

CLASSES = 10
CHECKED = (
    "own-span", "own-span-free", "own-span-odd-skip", "own-span-skewed", "own-listed", "own-targets1", "own-targets3",
    "bank-span", "bank-listed", "bank-listed-skip-inner", "bank-targets1", "both-span", "both-span-skip", "both-listed", "both-targets3",
    "own-span-inner", "both-span-inner", "both-listed-inner", "own-targets1-inner",
)  # fmt: skip
NUMERIC = ("far", "duplicates", "scales", "offset", "tiny", "lone")
# Errors allowed on plain data.
ALLOWED = {"fp16": 6e-3, "tf32": 6e-3, "fp16x3": 1e-5, "fp16x3-fp16": 2e-3, "bf16x3": 4e-5, "tf32x3": 1e-5}


def _points(n: int, d: int, generator: torch.Generator) -> Tensor:
    # Distances of a few bits, so that neither one neighbor nor all of them hold the weight.
    return torch.randn(n, d, generator=generator, device=generator.device) * math.sqrt(8 / d)


def _sorted_labels(n: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, CLASSES, (n,), generator=generator, device=generator.device).sort()[0]


def _span(labels: Tensor, among: Tensor) -> Tensor:
    return torch.stack([torch.searchsorted(among, labels), torch.searchsorted(among, labels, right=True)], 1)


def own(n: int, d: int, seed: int, device: str = "cuda") -> Work:
    """n labeled points that are each other's references, but not their own."""
    return make("own-span", n, d, seed, device)


def bank(n: int, m: int, d: int, seed: int, device: str = "cuda") -> Work:
    """n queries against m unit references that take no gradient, at temperature 0.1."""
    generator = torch.Generator(device).manual_seed(seed)
    scale = math.sqrt(10 * math.log2(math.e))
    points = [torch.nn.functional.normalize(_points(k, d, generator)) * scale for k in (n, m)]
    labels, others = _sorted_labels(n, generator), _sorted_labels(m, generator)
    return Work(points[0], points[1], squared=False, span=_span(labels, others), reference_gradient=False)


def make(name: str, n: int, d: int, seed: int, device: str = "cuda") -> Work:
    """Work by name: whose references, what is right, and what is odd about it. Banks are four times as large."""
    generator = torch.Generator(device).manual_seed(seed)
    mine, *traits = name.split("-")
    if mine == "bank" and traits == ["span"]:
        return bank(n, 4 * n, d, seed, device)
    m = n if mine == "own" else 4 * n if mine == "bank" else n + n // 3
    queries, references = _points(n, d, generator), _points(m, d, generator)
    labels, others = _sorted_labels(n, generator), _sorted_labels(m, generator)
    others = labels if mine == "own" else others

    def drawn(k: int) -> Tensor:
        return torch.randint(-1, m, (n, k), generator=generator, device=device)

    work = Work(queries, None if mine == "own" else references, squared="inner" not in traits, reference_gradient=mine == "both")
    itself = torch.arange(n, device=device)[:, None]
    if mine == "own":
        work = work._replace(skip=itself)
    if "skip" in traits:
        work = work._replace(skip=drawn(2))
    if "free" in traits:
        work = work._replace(skip=None)
    if traits[0] == "listed":
        return work._replace(listed=drawn(1 if mine == "bank" else 3))
    if traits[0].startswith("targets"):
        t = int(traits[0][-1])
        y, other_y = (100 + 5 * torch.randn(k, t, generator=generator, device=device) for k in (n, m))
        return work._replace(targets=(y, y if mine == "own" else other_y))
    span = _span(labels, others)
    return work._replace(span=span[torch.randperm(n, generator=generator, device=device)] if "skewed" in traits else span)


def numeric(name: str, n: int, d: int, seed: int, device: str = "cuda") -> Work:
    """Own references that break careless arithmetic."""
    work = own(n, d, seed, device)
    z = work.queries * math.sqrt(d / 8)  # unit variance
    bits = math.sqrt(math.log2(math.e))
    if name == "far":
        z = 10 * z
    if name == "duplicates":
        z = z[torch.arange(n, device=device) // 5 * 5 % n]
    if name == "scales":
        z = z * torch.where(torch.arange(n, device=device) % 2 == 0, 0.1, 20.0)[:, None]
    if name == "offset":
        z = (z + 100) - (z + 100).mean(0)
    if name == "tiny":
        z = z * 1e-6
    if name == "lone":  # a class of one, and points with no right reference at all
        span = work.span.clone() if work.span is not None else torch.empty(0, 2)
        span[:3] = 0
        work = work._replace(span=span)
    return work._replace(queries=(z * bits).contiguous())


class _Dense:
    """All pairs in float64."""

    def __init__(self, work: Work) -> None:
        self.q = work.queries.double()
        self.r = self.q if work.references is None else work.references.double()
        n, m, _ = sizes(work)
        column = torch.arange(m, device=self.q.device)
        if work.squared:
            self.s = torch.zeros(n, m, dtype=torch.float64, device=self.q.device)
            for q, r in zip(self.q.T, self.r.T, strict=True):  # one dimension at a time: many workers share the memory
                self.s -= (q[:, None] - r).square()
        else:
            self.s = self.q @ self.r.T
        self.candidate = torch.ones(n, m, dtype=torch.bool, device=self.q.device)
        if work.skip is not None:
            self.candidate = (work.skip[:, :, None] != column).all(1)
        self.right = torch.zeros_like(self.candidate)
        if work.span is not None:
            self.right = (column >= work.span[:, :1]) & (column < work.span[:, 1:])
        if work.listed is not None:
            self.right = (work.listed[:, :, None] == column).any(1)
        self.cost = None
        if work.targets is not None:
            self.cost = (work.targets[0].double()[:, None] - work.targets[1].double()[None]).square().sum(-1)

    def summaries(self) -> tuple[Tensor, Tensor]:
        if self.cost is None:
            return _log2_sum(self.s, self.candidate & self.right), _log2_sum(self.s, self.candidate & ~self.right)
        first = _log2_sum(self.s, self.candidate)
        share = torch.where(self.candidate, torch.exp2(self.s - torch.where(first.isfinite(), first, 0.0)[:, None]), 0.0)
        return first, (share * self.cost).sum(1)

    def gradients(self, work: Work, first: Tensor, second: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
        first, second, pull = (x.double()[:, None] for x in (first, second, pull))
        if self.cost is None:
            weight = torch.where(self.right, -pull * torch.exp2(self.s - first), pull * torch.exp2(self.s - second))
        else:
            weight = pull * torch.exp2(self.s - first) * (self.cost - second)
        weight = torch.where(self.candidate, weight, 0.0)
        to_queries, to_references = weight @ self.r, weight.T @ self.q
        if work.squared:
            to_queries = 2 * (to_queries - weight.sum(1)[:, None] * self.q)
            to_references = 2 * (to_references - weight.sum(0)[:, None] * self.r)
        return to_queries, to_references


def _log2_sum(s: Tensor, among: Tensor) -> Tensor:
    return torch.logsumexp(torch.where(among, s, -torch.inf) * math.log(2), 1) / math.log(2)


def _rounded(work: Work, scheme: str) -> Work:
    """The points as the scheme sees them."""

    def rounded(x: Tensor) -> Tensor:
        if scheme == "fp16":
            # The engine scales the largest point into range, so subnormals do not occur.
            up = 2.0 ** (13 - math.floor(math.log2(float(x.abs().max()))))
            return (x * up).half().float() / up
        return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) if scheme == "tf32" else x

    return work._replace(queries=rounded(work.queries), references=None if work.references is None else rounded(work.references))


def relative_error(found: Tensor, truth: Tensor, unit: float = 0.0) -> float:
    """|found - truth| / |truth| over what is finite; nan stays, infinities must agree. No entry counts as less than `unit`."""
    infinite = truth.isinf()
    if not torch.equal(found.double()[infinite], truth[infinite]):
        return math.inf
    difference = (found.double() - truth)[~infinite]
    return float(difference.norm() / truth[~infinite].abs().clamp(min=max(unit, 1e-300)).norm())


def _bounds(name: str, scheme: str) -> tuple[float, float]:
    """Errors allowed in the summaries and in the gradients."""
    plain = ALLOWED[scheme]
    if name in ("far", "scales", "duplicates"):
        # float32 itself: affinities of 10^4 bits have steps of 10^-3, and a gradient is as far off as its affinities.
        return plain, 5e-3 if SCHEMES[scheme].split or "x3" in scheme else 3e-2
    return plain, plain


def _finite(first: Tensor, second: Tensor, with_targets: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Summaries without infinities as the autograd layer passes them on, and which queries have both."""
    has_first, has_second = first.isfinite(), second.isfinite()
    finite = torch.where(has_first, first, torch.where(has_second, second, 0.0))
    other = second if with_targets else torch.where(has_second, second, finite)
    return finite, other, has_first & has_second


def _both_passes(engine: TritonEngine, work: Work, pull: Tensor) -> tuple[Tensor | None, ...]:
    """Summaries, and the gradients made of them."""
    found = engine.summaries(work)
    first, second, _ = _finite(*found, with_targets=work.targets is not None)
    return *found, *engine.gradients(work, first, second, pull)


def check_work(name: str, scheme: str, d: int, n: int = 1003, tiles: Mapping[Pass, Tile] | None = None) -> dict[str, Any]:
    """One engine on one piece of work against float64: errors, whether they are small enough, and the same twice."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # also fills fresh memory with nan, so that unwritten results show
    seed = int.from_bytes(os.urandom(3), "little")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    odd = name in NUMERIC
    work = numeric(name, n, d, seed, device) if odd else make(name, n, d, seed, device)
    engine = TritonEngine("fast", scheme, tiles or {})
    # Where affinities are large, rounding the points moves the answer; then the rounded points are the question.
    asked = _rounded(work, scheme) if odd else work
    dense = _Dense(asked)
    truth = dense.summaries()
    first, second, valid = _finite(*truth, with_targets=work.targets is not None)
    pull = torch.where(valid, torch.rand(n, device=device), 0.0) / n
    runs = [_both_passes(engine, work, pull) for _ in range(2)]
    same = all(a is b or torch.equal(a, b) for a, b in zip(*runs, strict=True))
    found = [x for x in runs[0] if x is not None]
    slopes = dense.gradients(asked, first, second, pull)
    if work.squared:  # the engine leaves the query's own square length out of its log-sums
        norm = dense.q.square().sum(1)
        truth = truth[0] + norm, truth[1] if work.targets is not None else truth[1] + norm
    slopes = (slopes[0] + slopes[1],) if work.references is None else slopes
    errors = [relative_error(a, b, unit=1.0) for a, b in zip(found[:2], truth, strict=True)]  # bits, or costs of about 50
    errors += [relative_error(a, b) for a, b in zip(found[2:], slopes, strict=False)]
    allowed, steep = _bounds(name, scheme)
    ok = same and all(error <= bound for error, bound in zip(errors, (allowed, allowed, steep, steep), strict=False))
    return {"ok": ok, "errors": errors, "note": f"seed {seed}" + ("" if same else " NOT DETERMINISTIC")}
