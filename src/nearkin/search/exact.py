"""Exact nearest neighbors under the very affinity an objective was trained with."""

from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, SquaredEuclidean
from nearkin.compose.points import Points
from nearkin.search.candidates import candidates, full_precision, survivors
from nearkin.search.exclusion import Exclusion
from nearkin.search.hamming import nearest_codes
from nearkin.search.inputs import References, blocks, check_groups, check_numbers, check_sides, checked_points, exclusion
from nearkin.search.measure import Measure, exact_scores, factors, in_range, inverse_lengths, measure, pair_scores, shown, slack
from nearkin.search.packing import pack

BLOCK = 4096  # rows and columns of an unknown affinity held at once: 64 MB in float32
FEW = 4  # queries that are compared with every reference at once
MANY = 1 << 24  # pairs above which copies among the references are looked for before everything is compared


class Neighbors(NamedTuple):
    """The k nearest references of every query, nearest first; k may be lower than asked when there are fewer."""

    positions: Tensor  # (n, k) int64, rows of the references; -1 where exclusion left a query fewer than k
    affinity: Tensor  # (n, k), -inf where there is none


class Scored(NamedTuple):
    """The k best of some references before their scores are rounded: what parts of a whole are joined by."""

    best: Neighbors  # scores in place of affinities: float64 where the affinity is a known one
    references: int  # looked at
    dtype: torch.dtype  # to be rounded to


class _Sides(NamedTuple):
    """Queries and one block of references, ready to be compared."""

    queries: Tensor  # (n, d)
    references: Tensor  # (m, d)
    excluded: Exclusion
    k: int


@torch.no_grad()
def nearest(
    queries: Points | Tensor,
    references: References,
    k: int,
    affinity: Affinity | None = None,
    *,
    exclude_same_id: bool = False,
    groups: tuple[Tensor, Tensor] | None = None,
    block: int | None = None,
) -> Neighbors:
    """The k nearest of `references` (m, d) to each of `queries` (n, d), by minus squared Euclidean distance unless told.

    Ties go to the earlier reference. With `exclude_same_id` a reference with the query's id is passed over, wherever it
    stands; with `groups`, one number for each query and one for each reference, so are those of the query's group. k above
    m is lowered to m. References may be larger than memory: a memory-mapped array, a folder of shards (`open_shards`), or an
    iterable of consecutive blocks; `block` of them are taken at a time. float16 and integers are lifted.

    Rankings are those of float64 on the given numbers, whatever the block size and however far from the origin the data sit;
    affinities are rounded to the queries' type. An affinity of the caller's own is ranked as it comes.
    """
    return settled(scored(queries, references, k, affinity, exclude_same_id=exclude_same_id, groups=groups, block=block), affinity)


@torch.no_grad()
def scored(
    queries: Points | Tensor,
    references: References,
    k: int,
    affinity: Affinity | None = None,
    *,
    exclude_same_id: bool = False,
    groups: tuple[Tensor, Tensor] | None = None,
    block: int | None = None,
) -> Scored:
    """What `nearest` finds, not rounded yet: two of different parts can still be `joined` without a tie that is none."""
    asked = checked_points(queries, "queries")
    check_numbers(k, block)
    how = measure(SquaredEuclidean() if affinity is None else affinity)
    whole = check_groups(groups, asked.embeddings)
    best: Neighbors | None = None
    start, dtype = 0, asked.embeddings.dtype
    for some in blocks(references, asked.embeddings, block):
        check_sides(asked, some, exclude_same_id)
        dtype = torch.promote_types(dtype, some.embeddings.dtype)
        excluded = exclusion(asked, some, exclude_same_id, whole, start)
        sides = _Sides(asked.embeddings.to(dtype), some.embeddings.to(dtype), excluded, k)
        if getattr(affinity, "metric", None) == "hamming" and asked.embeddings.device.type == "cpu" and excluded == Exclusion():
            found = _by_bits(sides)
        elif how is not None:
            found = _within(how, sides)
        else:
            assert affinity is not None
            found = _within_unknown(affinity, sides)
        found = found._replace(positions=torch.where(found.positions >= 0, found.positions + start, -1))
        best = found if best is None else _merged(best, found, k)
        start += len(some.embeddings)
    if best is None:
        raise ValueError("references must be a tensor (n, d) with at least one row, not an empty iterable")
    if whole is not None and start != len(whole[1]):
        raise ValueError(f"groups hold {len(whole[1])} numbers for {start} references; give one for each")
    return Scored(best, start, dtype)


def joined(a: Scored, b: Scored, k: int) -> Scored:
    """The k best of two parts; the references of b stand right behind those of a."""
    moved = torch.where(b.best.positions >= 0, b.best.positions + a.references, -1)
    best = _merged(a.best, b.best._replace(positions=moved), k)
    return Scored(best, a.references + b.references, torch.promote_types(a.dtype, b.dtype))


def settled(found: Scored, affinity: Affinity | None = None) -> Neighbors:
    """Scores as affinities, rounded."""
    how = measure(SquaredEuclidean() if affinity is None else affinity)
    scores = found.best.affinity if how is None else how.affinity(found.best.affinity)
    return Neighbors(found.best.positions, scores.to(found.dtype))


def _within(how: Measure, sides: _Sides) -> Neighbors:
    """Float64 scores and positions of the k best: candidates by products, ranked exactly, and checked to be all there are."""
    if len(sides.queries) <= FEW and sides.queries.device.type == "cpu" and find_spec("numba"):
        return _directly(how, sides)
    q, r = in_range(sides.queries), in_range(sides.references)
    wide = torch.promote_types(q.dtype, r.dtype)
    q, r = q.to(wide), r.to(wide)
    to_unit = inverse_lengths(q, how.unit_queries), inverse_lengths(r, how.unit_references)
    made = factors(how, q, r, to_unit)
    k, m = min(sides.k, len(r)), len(r)
    wanted = k + max(6, k // 16)
    if q.device.type == "cpu" and wide == torch.float32 and find_spec("numba"):
        from nearkin.search import numba_scan

        scores, columns, least = numba_scan.candidates(how, q, r, to_unit, made, wanted, sides.excluded)
        least = least.double()
    else:
        with full_precision():
            products, columns = candidates(made, wanted, sides.excluded)
        least = products.double().amin(1)
        columns = columns.sort(dim=1).values  # ties to the earlier
        scores, by = exact_scores(how, q, r, to_unit, columns).sort(dim=1, descending=True, stable=True)
        columns = columns.gather(1, by)
    scores, columns = scores[:, :k], columns[:, :k]
    if wanted >= m:  # nobody was left behind
        return Neighbors(columns, scores)
    kth = scores[:, k - 1]
    room = slack(how, made, kth)
    unsure = ((least > -torch.inf) & (shown(how, made, kth) <= least + room)).nonzero()[:, 0]
    if len(unsure):
        floor = (shown(how, made, kth) - room)[unsure]
        scores, columns = scores.clone(), columns.clone()
        with full_precision():
            columns[unsure], scores[unsure] = _all_compared(how, sides._replace(queries=q, references=r), unsure, floor)
    return Neighbors(columns, scores)


def _directly(how: Measure, sides: _Sides) -> Neighbors:
    """Every pair exactly: for a query or two that is less work than to get the references ready for products."""
    scores = all_pairs(how, sides.queries, sides.references)
    hidden = sides.excluded.mask(slice(None), slice(None))
    found = _top_k(scores if hidden is None else scores.masked_fill_(hidden, -torch.inf), sides.k)
    return found._replace(positions=torch.where(found.affinity > -torch.inf, found.positions, -1))


def all_pairs(how: Measure, queries: Tensor, references: Tensor) -> Tensor:
    """(n, m) float64: the exact score of every pair, whatever stands beside it."""
    q, r = queries.contiguous(), references.contiguous()
    to_unit = inverse_lengths(q, how.unit_queries), inverse_lengths(r, how.unit_references)
    if q.device.type == "cpu" and find_spec("numba"):
        from nearkin.search import numba_scan

        return numba_scan.all_scores(how, q, r, to_unit)
    return exact_scores(how, q, r, to_unit, torch.arange(len(r), device=r.device).expand(len(q), len(r)))


def _all_compared(how: Measure, sides: _Sides, unsure: Tensor, floor: Tensor) -> Neighbors:
    """The k best of the queries `unsure`, from everybody whose product reaches their `floor`: copies tie, and ties have an order."""
    q, r, k = sides.queries, sides.references, min(sides.k, len(sides.references))
    kept = torch.arange(len(r), device=r.device)
    if len(unsure) * len(r) > MANY:
        kept = _first_copies(r, k + sides.excluded.most)
    few, excluded = r[kept], sides.excluded.of_references(kept)
    to_unit = inverse_lengths(q, how.unit_queries), inverse_lengths(few, how.unit_references)
    made = factors(how, q, r, (to_unit[0], inverse_lengths(r, how.unit_references)))  # around the same center as the floor
    made = made._replace(references=made.references[kept], minus=made.minus[kept])
    parts = []
    for rows, least in zip(torch.split(unsure, 1024), torch.split(floor, 1024), strict=True):
        best = Neighbors(kept.new_full((len(rows), k), -1), floor.new_full((len(rows), k), -torch.inf))
        for place, column in survivors(made, rows, least, excluded):
            scores = _pair_scores(how, q, few, to_unit, rows[place], column)
            best = _merged(best, _spread(place, kept[column], scores, len(rows)), k)
        parts.append(best)
    return Neighbors(torch.cat([p.positions for p in parts]), torch.cat([p.affinity for p in parts]))


def _pair_scores(how: Measure, q: Tensor, r: Tensor, to_unit: tuple[Tensor, Tensor], rows: Tensor, columns: Tensor) -> Tensor:
    """Scores of pairs by whatever scored the candidates: sums in another order differ in the last digit, and a tie would be none."""
    if q.device.type == "cpu" and q.dtype == r.dtype == torch.float32 and find_spec("numba"):
        from nearkin.search import numba_scan

        return numba_scan.scores_of(how, q, r, to_unit, rows, columns)
    return pair_scores(how, q, r, to_unit, rows, columns)


def _spread(rows: Tensor, positions: Tensor, scores: Tensor, n: int) -> Neighbors:
    """Pairs, sorted by row, as the lines of a table (n, most), -1 and -inf where a row has fewer."""
    counts = torch.bincount(rows, minlength=n)
    place = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    width = int(counts.max()) if len(rows) else 0
    table = Neighbors(positions.new_full((n, width), -1), scores.new_full((n, width), -torch.inf))
    table.positions[rows, place], table.affinity[rows, place] = positions, scores
    return table


def _first_copies(x: Tensor, count: int) -> Tensor:
    """Positions of rows without those that have `count` equal rows before them: they can be nobody's neighbor."""
    _, which = torch.unique(x, dim=0, return_inverse=True)
    which, order = which.sort(stable=True)
    first = torch.searchsorted(which, which)
    rank = torch.arange(len(x), device=x.device) - first
    kept: Tensor = order[rank < count].sort().values
    return kept


def _by_bits(sides: _Sides) -> Neighbors:
    """Codes, packed and compared by the bits that differ."""
    positions, distances = nearest_codes(pack(sides.queries), pack(sides.references), sides.k)
    return Neighbors(torch.from_numpy(positions), -torch.from_numpy(distances).to(sides.queries.dtype))


def _within_unknown(affinity: Affinity, sides: _Sides) -> Neighbors:
    """An affinity that only its caller knows: block by block, as it comes."""
    m, parts = len(sides.references), []
    for top in range(0, len(sides.queries), BLOCK):
        rows = slice(top, top + BLOCK)
        best: Neighbors | None = None
        for start in range(0, m, BLOCK):
            # The last block reaches back to full width: products of another shape round otherwise, and equal rows would differ.
            columns = slice(max(min(start, m - BLOCK), 0), start + BLOCK)
            near = affinity(sides.queries[rows], sides.references[columns])  # (rows, columns)
            hidden = sides.excluded.mask(rows, columns)
            near = near if hidden is None else near.masked_fill(hidden, -torch.inf)
            found = _top_k(near[:, start - columns.start :], sides.k)
            found = found._replace(positions=torch.where(found.affinity > -torch.inf, found.positions + start, -1))
            best = found if best is None else _merged(best, found, sides.k)
        assert best is not None
        parts.append(best)
    return Neighbors(torch.cat([p.positions for p in parts]), torch.cat([p.affinity for p in parts]))


def _top_k(near: Tensor, k: int) -> Neighbors:
    """Row-wise top k with ties to the earlier column, which torch.topk does not promise."""
    m = near.shape[1]
    if k >= m:
        values, columns = near.sort(dim=1, descending=True, stable=True)
        return Neighbors(columns, values)
    values, columns = near.topk(k + 1, dim=1)
    cut = values[:, k] == values[:, k - 1]  # a tie across the border: topk may have kept any of them
    values, columns = values[:, :k], columns[:, :k]
    columns, by_column = columns.sort(dim=1)
    values, by_value = values.gather(1, by_column).sort(dim=1, descending=True, stable=True)
    columns = columns.gather(1, by_value)
    if bool(cut.any()):
        values, columns = values.clone(), columns.clone()
        full_values, full_columns = near[cut].sort(dim=1, descending=True, stable=True)
        values[cut], columns[cut] = full_values[:, :k], full_columns[:, :k]
    return Neighbors(columns, values)


def _merged(a: Neighbors, b: Neighbors, k: int) -> Neighbors:
    """a is in order and its references stand before b's, whose ties are in order: a stable sort keeps ties right."""
    values, order = torch.cat([a.affinity, b.affinity], 1).sort(dim=1, descending=True, stable=True)
    positions = torch.cat([a.positions, b.positions], 1).gather(1, order)
    return Neighbors(positions[:, :k], values[:, :k])
