"""Queries against a gallery: inputs checked once, with classes and exclusions, ready to be ranked.

Affinities are computed in float64 around the mean of the gallery and compared in float32. Differences below the precision of float32
are ties, and every metric gives a tie its expected value. Equal rows of the gallery always tie.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, SquaredEuclidean
from nearkin.compose.points import Points
from nearkin.compose.validation import check_finite, check_whole
from nearkin.search.candidates import full_precision
from nearkin.search.exclusion import Exclusion
from nearkin.search.inputs import check_ids
from nearkin.search.measure import Factors, Measure, factors, grain, inverse_lengths, measure

GROWING = ("squared_euclidean", "euclidean", "inner_product")  # metrics whose values overflow; a cosine is of unit vectors
Groups = Tensor | tuple[Tensor, Tensor]
NUMBERS = 1 << 22  # affinities held at once: 32 MB in float64
CUDA_NUMBERS = 1 << 26  # 512 MB


class Comparison(NamedTuple):
    """n queries and m gallery points with their classes, and which points each query excludes."""

    queries: Points
    gallery: Points
    affinity: Affinity
    excluded: Exclusion
    notes: tuple[str, ...] = ()

    @property
    def same_class(self) -> tuple[Tensor, Tensor]:
        """Class numbers 0..C-1 of both sides, (n,) and (m,), from labels of any size."""
        assert self.queries.labels is not None and self.gallery.labels is not None
        both = torch.cat([self.queries.labels, self.gallery.labels])
        codes = torch.unique(both, return_inverse=True)[1]
        return codes[: len(self.queries.labels)], codes[len(self.queries.labels) :]


class Ranker(NamedTuple):
    """A comparison prepared for products: `scores` computes blocks of it."""

    how: Measure | None  # None for a custom affinity
    made: Factors | None
    comparison: Comparison
    copies: Tensor | None  # (m,) index of the distinct row of each gallery point, when some rows are equal
    own: Tensor | None  # (n,) position of the query in the gallery, or -1; None when more than one point may be excluded

    def scores(self, rows: slice) -> Tensor:
        """(rows, m) float32, larger is nearer; -inf for excluded points."""
        near = self._raw(rows)
        near = near if self.copies is None else near[:, self.copies]
        if self.own is not None:  # each query is in the gallery at most once: no need to compare all ids
            row = (self.own[rows] >= 0).nonzero()[:, 0]
            near[row, self.own[rows][row]] = -torch.inf
            return near
        hidden = self.comparison.excluded.mask(rows, slice(None))
        return near if hidden is None else near.masked_fill_(hidden, -torch.inf)

    def affinities(self, rows: slice) -> Tensor:
        """(rows, m) float64 affinities; -inf for excluded points."""
        scores = self.scores(rows).double()
        return scores if self.how is None else self.how.affinity(scores)

    def _raw(self, rows: slice) -> Tensor:
        if self.how is None or self.made is None:
            gallery = self.comparison.gallery.embeddings
            return self.comparison.affinity(self.comparison.queries.embeddings[rows], gallery).float()
        near = torch.addmm(self.made.minus, self.made.queries[rows], self.made.references.T)
        if self.how.squared:
            near.sub_(self.made.squares[rows, None]).clamp_(max=0)
        return rounded(near, grain(self.how, self.made)[rows, None])

    def step(self) -> int:
        """The number of rows of one block."""
        gallery = self.comparison.gallery.embeddings
        return max((CUDA_NUMBERS if gallery.is_cuda else NUMBERS) // len(gallery), 1)


def rounded(near: Tensor, step: Tensor) -> Tensor:
    """Round scores (n, m) to multiples of `step` (n, 1), then to float32, as they are compared."""
    if bool((step > 0).any()):
        near = torch.where(step > 0, (near / step).round_() * step, near)
    return near.float()


def compare(
    queries: Points, gallery: Points | None, affinity: Affinity | None, groups: Groups | None = None, *, labeled: bool = True
) -> Comparison:
    """Compare queries among themselves, each without itself, or with a gallery, without equal ids."""
    leave_one_out = gallery is None
    if leave_one_out:
        _check(queries, "queries", labeled)
        ids = torch.arange(len(queries.embeddings), device=queries.embeddings.device)
        queries = queries if queries.ids is not None else queries._replace(ids=ids)
        gallery = queries
    assert gallery is not None
    _check(queries, "queries", labeled)
    _check(gallery, "gallery", labeled)
    a, b = queries.embeddings.shape[1], gallery.embeddings.shape[1]
    if a != b:
        raise ValueError(f"queries have {a} dimensions and the gallery {b}; both must come from the same network")
    known = queries.ids is not None and gallery.ids is not None
    excluded = Exclusion(queries.ids, gallery.ids) if known else Exclusion()
    if groups is not None:
        mine, theirs = _groups(groups, leave_one_out, len(queries.embeddings), len(gallery.embeddings))
        excluded = excluded._replace(groups=mine, reference_groups=theirs)
    affinity = SquaredEuclidean() if affinity is None else affinity
    if getattr(affinity, "metric", None) in GROWING:
        _check_size(queries.embeddings, "queries")
        _check_size(gallery.embeddings, "gallery")
    found = Comparison(queries, gallery, affinity, excluded)
    return found if known else found._replace(notes=_duplicates_note(found))


def ranker(comparison: Comparison) -> Ranker:
    """Compute what all blocks share."""
    queries, gallery = comparison.queries.embeddings, comparison.gallery.embeddings
    gallery, copies = _distinct(gallery)
    how, own = measure(comparison.affinity), own_places(comparison.excluded)
    q, r = queries.double(), gallery.double()
    if how is None:
        points = comparison.gallery._replace(embeddings=r)
        return Ranker(None, None, comparison._replace(queries=comparison.queries._replace(embeddings=q), gallery=points), copies, own)
    with full_precision():
        made = factors(how, q, r, (inverse_lengths(q, how.unit_queries), inverse_lengths(r, how.unit_references)))
    return Ranker(how, made, comparison, copies, own)


def own_places(excluded: Exclusion) -> Tensor | None:
    """(n,) position of the one gallery point with the query's id, -1 if there is none; None if more than that may be excluded."""
    ids, theirs = excluded.ids, excluded.reference_ids
    if ids is None or theirs is None or excluded.groups is not None:
        return None
    theirs, order = theirs.sort()
    if bool((theirs[1:] == theirs[:-1]).any()):
        return None
    at = torch.searchsorted(theirs, ids).clamp_max(len(theirs) - 1)
    return torch.where(theirs[at] == ids, order[at], -1)


def class_labels(labels: Any, count: int, name: str) -> Tensor:
    """Return labels (n,) if they are whole numbers, else raise an error that says how to get them."""
    if not isinstance(labels, Tensor):
        kind = type(labels[0]).__name__ if isinstance(labels, Sequence) and len(labels) else type(labels).__name__
        raise ValueError(f"{name} hold {kind}, not a tensor of classes; convert them with codes, names = nearkin.encode_labels(...)")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(
            f"{name} are {labels.dtype}; classes are whole numbers: use nearkin.encode_labels for names, regression() for numeric targets"
        )
    if labels.shape != (count,):
        raise ValueError(
            f"{name} have shape {tuple(labels.shape)} for {count} embeddings; give one class for each, and remove points without a class"
        )
    return labels


def finite(x: Any, name: str) -> Tensor:
    """Return x (n, d) if it has at least one row and only finite numbers."""
    if not isinstance(x, Tensor) or x.ndim != 2 or 0 in x.shape:
        shape = tuple(x.shape) if isinstance(x, Tensor) else f"{type(x).__name__}; convert it with torch.as_tensor(...)"
        raise ValueError(f"{name} must be a tensor (n, d) with at least one row, not {shape}")
    return check_finite(name, x)  # type: ignore[no-any-return]


def whole_numbers_above_zero(ks: Sequence[int]) -> tuple[int, ...]:
    """Return ks without duplicates, or raise an error."""
    for k in ks:
        check_whole("k", k)
    return tuple(dict.fromkeys(ks))


def _check(points: Points, name: str, labeled: bool) -> None:
    if not isinstance(points, Points):
        raise ValueError(f"{name} must be Points(embeddings, labels), not {type(points).__name__}")
    finite(points.embeddings, name)
    if labeled and points.labels is None:
        raise ValueError(f"{name}.labels are missing; this metric needs classes: Points(embeddings, labels)")
    if labeled:
        class_labels(points.labels, len(points.embeddings), f"{name}.labels")
    check_ids(points, name)


def _check_size(x: Tensor, name: str) -> None:
    """Refuse numbers whose squared distances overflow: all points would be equally far, and figures silently wrong or NaN."""
    largest, most = float(x.abs().max()), math.sqrt(torch.finfo(torch.float32).max / (4 * x.shape[1]))
    if largest > most:
        raise ValueError(f"{name} reach {largest:.2g}, and squared distances overflow above {most:.2g}; divide them by a constant")


def _groups(groups: Groups, leave_one_out: bool, n: int, m: int) -> tuple[Tensor, Tensor]:
    mine, theirs = groups if isinstance(groups, tuple) else (groups, groups)
    if not leave_one_out and not isinstance(groups, tuple):
        raise ValueError("groups must be a pair, (n,) for the queries and (m,) for the gallery, when a gallery is given")
    for some, count, name in ((mine, n, "queries"), (theirs, m, "gallery points")):
        if some.shape != (count,):
            raise ValueError(f"groups have shape {tuple(some.shape)} for {count} {name}; give one number for each")
    return mine, theirs


def _distinct(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the distinct rows and the index of each row among them; x itself and None when no two are equal."""
    if len(torch.unique(_fingerprints(x))) == len(x):
        return x, None
    rows, which = torch.unique(x, dim=0, return_inverse=True)
    return (x, None) if len(rows) == len(x) else (rows, which)


def _duplicates_note(comparison: Comparison) -> tuple[str, ...]:
    """A note when queries seem to be in the gallery, but there are no ids to exclude them by."""
    q, r = comparison.queries.embeddings, comparison.gallery.embeddings
    if q.dtype != r.dtype or q.device != r.device:
        return ()
    inside = int(torch.isin(_fingerprints(q), _fingerprints(r)).sum())
    if not inside:
        return ()
    return (f"{inside} queries have an equal row in the gallery; if they are the same samples, give ids on both sides",)


def _fingerprints(x: Tensor) -> Tensor:
    """(n,) int64 hashes: equal for equal rows, and almost never for others."""
    odd = torch.randint(1 << 62, (x.shape[1],), generator=torch.Generator().manual_seed(0)).to(x.device) * 2 + 1
    found = []
    for part in torch.split(x, max(NUMBERS // x.shape[1], 1)):  # some at a time: it takes eight times the memory of the rows
        whole = (part.double() + 0.0).contiguous().view(torch.int64)  # -0.0 is 0.0
        mixed = (whole ^ (whole >> 29)) * odd
        found.append((mixed ^ (mixed >> 32)).sum(1))
    return torch.cat(found)
