"""Exact nearest neighbors under the affinity that an objective was trained with."""

from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, SquaredEuclidean
from nearkin.compose.points import Points
from nearkin.search.candidates import candidates, full_precision, pairs_reaching
from nearkin.search.exclusion import Exclusion
from nearkin.search.hamming import nearest_codes
from nearkin.search.inputs import References, blocks, check_groups, check_numbers, check_sides, checked_points, exclusion, is_same
from nearkin.search.measure import Measure, exact_scores, factors, in_range, inverse_lengths, measure, pair_scores, shown, slack
from nearkin.search.packing import pack

BLOCK = 4096  # rows and columns of a custom affinity held at once: 64 MB in float32
FEW = 4  # up to this many queries, every pair is scored exactly
MANY = 1 << 24  # pairs above which duplicate references are removed before all close pairs are compared


class Neighbors(NamedTuple):
    """The k nearest references of every query, nearest first.

    Parameters
    ----------
    positions : Tensor (n, k) int64
        Rows of the references; -1 where exclusion left a query with fewer than k.
    affinity : Tensor (n, k)
        Their affinities, largest first; -inf where the position is -1.

    Examples
    --------
    >>> import torch
    >>> from nearkin.search import nearest
    >>> positions, affinity = nearest(torch.tensor([[0.0]]), torch.tensor([[3.0], [1.0]]), k=2)
    >>> positions
    tensor([[1, 0]])
    """

    positions: Tensor  # (n, k)
    affinity: Tensor  # (n, k)


class Scored(NamedTuple):
    """The k best of some references before their scores are rounded, so that the results of several parts can be merged exactly."""

    best: Neighbors  # holds scores instead of affinities: float64 unless the affinity is custom
    references: int  # number of references searched
    dtype: torch.dtype  # type of the final affinities


class _Sides(NamedTuple):
    """Queries and one block of references, checked and of one type."""

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
    """Find the k nearest references of every query, exactly.

    Rankings are those of float64 arithmetic on the numbers you pass, whatever the block size and however far the data are from the
    origin. Ties go to the earlier reference; scores of unit vectors are rounded to multiples of 2^-42 first, so that parallel vectors
    tie. Affinities are rounded to the type of the inputs at the end.

    Parameters
    ----------
    queries : Points or Tensor or ndarray (n, d)
        float16 and integers are converted to float32.
    references : Points, Tensor, ndarray, Shards or iterable of them, (m, d) in all
        May be larger than memory: a memory-mapped array, a folder of shards (`nearkin.open_shards`), or an iterable of consecutive blocks.
    k : int
        How many neighbors. If k is above the number of references m, the result has m columns; k below 1 is an error.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default. Pass the affinity of your objective. A custom callable is ranked in the
        precision it returns.
    exclude_same_id : bool, default False
        Exclude references with the id of the query, wherever they are. Use it when the queries are among the references: excluding
        the first hit instead would keep duplicates of the query. Both sides need ids.
    groups : pair of Tensors (n,) and (m,), optional
        Group numbers. References of the query's group are excluded, such as frames of the same video.
    block : int, optional
        References held in memory at a time; by default about 256 MB of float32. The result does not depend on it.

    Returns
    -------
    Neighbors
        `positions` (n, k) int64 and `affinity` (n, k), nearest first. Where exclusion leaves a query fewer than k references,
        the remaining positions are -1 and their affinities -inf.

    Raises
    ------
    ValueError
        If shapes or dimensions do not fit, values are not finite, or ids are missing.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Points, nearest
    >>> x = torch.tensor([[0.0], [1.0], [3.0]])
    >>> found = nearest(torch.tensor([[0.9]]), x, k=2)
    >>> found.positions
    tensor([[1, 0]])

    Search a set for the neighbors of its own points, without the points themselves:

    >>> points = Points(x, ids=torch.arange(3))
    >>> nearest(points, points, k=1, exclude_same_id=True).positions
    tensor([[1],
            [0],
            [1]])

    k is clamped to the number of references:

    >>> nearest(x, x, k=10).positions.shape
    torch.Size([3, 3])
    """
    return round_scored(
        score_nearest(queries, references, k, affinity, exclude_same_id=exclude_same_id, groups=groups, block=block), affinity
    )


@torch.no_grad()
def score_nearest(
    queries: Points | Tensor,
    references: References,
    k: int,
    affinity: Affinity | None = None,
    *,
    exclude_same_id: bool = False,
    groups: tuple[Tensor, Tensor] | None = None,
    block: int | None = None,
) -> Scored:
    """Search like `nearest`, but keep the scores in float64, so that `merge_scored` sees no false ties between parts."""
    points = checked_points(queries, "queries")
    check_numbers(k, block)
    how = measure(SquaredEuclidean() if affinity is None else affinity)
    whole = check_groups(groups, points.embeddings)
    best: Neighbors | None = None
    start, dtype = 0, points.embeddings.dtype
    for some in blocks(references, points.embeddings, block):
        check_sides(points, some, exclude_same_id)
        dtype = torch.promote_types(dtype, some.embeddings.dtype)
        excluded = exclusion(points, some, exclude_same_id, whole, start)
        sides = _Sides(points.embeddings.to(dtype), some.embeddings.to(dtype), excluded, k)
        if getattr(affinity, "metric", None) == "hamming" and points.embeddings.device.type == "cpu" and excluded == Exclusion():
            found = _search_codes(sides)
        elif how is not None:
            found = _search_known(how, sides)
        else:
            assert affinity is not None
            found = _search_custom(affinity, sides)
        found = found._replace(positions=torch.where(found.positions >= 0, found.positions + start, -1))
        best = found if best is None else _merge(best, found, k)
        start += len(some.embeddings)
    if best is None:
        raise ValueError("references must hold at least one row (m, d), but the iterable is empty")
    if whole is not None and start != len(whole[1]):
        raise ValueError(f"groups hold {len(whole[1])} numbers for {start} references; give one for each")
    return Scored(best, start, dtype)


def merge_scored(a: Scored, b: Scored, k: int) -> Scored:
    """Merge the k best of two parts; the references of b follow those of a."""
    moved = torch.where(b.best.positions >= 0, b.best.positions + a.references, -1)
    best = _merge(a.best, b.best._replace(positions=moved), k)
    return Scored(best, a.references + b.references, torch.promote_types(a.dtype, b.dtype))


def round_scored(found: Scored, affinity: Affinity | None = None) -> Neighbors:
    """Convert scores to affinities and round them to the final type."""
    how = measure(SquaredEuclidean() if affinity is None else affinity)
    scores = found.best.affinity if how is None else how.affinity(found.best.affinity)
    return Neighbors(found.best.positions, scores.to(found.dtype))


def _search_known(how: Measure, sides: _Sides) -> Neighbors:
    """Search under a known affinity: candidates from products, ranked by exact scores, then checked to be complete."""
    if len(sides.queries) <= FEW and sides.queries.device.type == "cpu" and find_spec("numba"):
        return _search_few(how, sides)
    q, r = in_range(sides.queries), in_range(sides.references)
    wide = torch.promote_types(q.dtype, r.dtype)
    q, r = q.to(wide), r.to(wide)
    to_unit = inverse_lengths(q, how.unit_queries), inverse_lengths(r, how.unit_references)
    made = factors(how, q, r, to_unit)
    k, m = min(sides.k, len(r)), len(r)
    count = k + max(6, k // 16)
    if q.device.type == "cpu" and wide == torch.float32 and find_spec("numba"):
        from nearkin.search import numba_scan

        if is_same(q, r) and how.unit_queries == how.unit_references:
            scores, columns, least = numba_scan.candidates_among(how, r, to_unit[1], made, count, sides.excluded)
        else:
            scores, columns, least = numba_scan.candidates(how, q, r, to_unit, made, count, sides.excluded)
        least = least.double()
    else:
        with full_precision():
            products, columns = candidates(made, count, sides.excluded)
        least = products.double().amin(1)
        columns = columns.sort(dim=1).values  # ties to the earlier
        scores, by = exact_scores(how, q, r, to_unit, columns).sort(dim=1, descending=True, stable=True)
        columns = columns.gather(1, by)
    scores, columns = scores[:, :k], columns[:, :k]
    if count >= m:  # every reference was a candidate
        return Neighbors(columns, scores)
    kth = scores[:, k - 1]
    room = slack(how, made, kth) + how.step
    unsure = ((least > -torch.inf) & (shown(how, made, kth) <= least + room)).nonzero()[:, 0]
    if len(unsure):
        floor = (shown(how, made, kth) - room)[unsure]
        scores, columns = scores.clone(), columns.clone()
        with full_precision():
            columns[unsure], scores[unsure] = _search_close(how, sides._replace(queries=q, references=r), unsure, floor)
    return Neighbors(columns, scores)


def _search_few(how: Measure, sides: _Sides) -> Neighbors:
    """Score every pair exactly: for a few queries this is less work than preparing the references for products."""
    scores = all_pairs(how, sides.queries, sides.references)
    hidden = sides.excluded.mask(slice(None), slice(None))
    found = _top_k(scores if hidden is None else scores.masked_fill_(hidden, -torch.inf), sides.k)
    return found._replace(positions=torch.where(found.affinity > -torch.inf, found.positions, -1))


def all_pairs(how: Measure, queries: Tensor, references: Tensor) -> Tensor:
    """(n, m) float64: the exact score of every pair, independent of the other pairs."""
    q, r = queries.contiguous(), references.contiguous()
    to_unit = inverse_lengths(q, how.unit_queries), inverse_lengths(r, how.unit_references)
    if q.device.type == "cpu" and find_spec("numba"):
        from nearkin.search import numba_scan

        return numba_scan.all_scores(how, q, r, to_unit)
    return exact_scores(how, q, r, to_unit, torch.arange(len(r), device=r.device).expand(len(q), len(r)))


def _search_close(how: Measure, sides: _Sides, unsure: Tensor, floor: Tensor) -> Neighbors:
    """Search again for the queries `unsure`, among all references whose product reaches the `floor`: duplicates tie, in order."""
    q, r, k = sides.queries, sides.references, min(sides.k, len(sides.references))
    kept = torch.arange(len(r), device=r.device)
    if len(unsure) * len(r) > MANY:
        kept = _first_copies(r, k + sides.excluded.most)
    few, excluded = r[kept], sides.excluded.of_references(kept)
    to_unit = inverse_lengths(q, how.unit_queries), inverse_lengths(few, how.unit_references)
    made = factors(how, q, r, (to_unit[0], inverse_lengths(r, how.unit_references)))  # with the same center as the floor
    made = made._replace(references=made.references[kept], minus=made.minus[kept])
    parts = []
    for rows, least in zip(torch.split(unsure, 1024), torch.split(floor, 1024), strict=True):
        best = Neighbors(kept.new_full((len(rows), k), -1), floor.new_full((len(rows), k), -torch.inf))
        for place, column in pairs_reaching(made, rows, least, excluded):
            scores = _pair_scores(how, q, few, to_unit, rows[place], column)
            best = _merge(best, _as_table(place, kept[column], scores, len(rows)), k)
        parts.append(best)
    return Neighbors(torch.cat([p.positions for p in parts]), torch.cat([p.affinity for p in parts]))


def _pair_scores(how: Measure, q: Tensor, r: Tensor, to_unit: tuple[Tensor, Tensor], rows: Tensor, columns: Tensor) -> Tensor:
    """Score pairs with the loop that scored the candidates: another order of summation would break ties in the last digit."""
    if q.device.type == "cpu" and q.dtype == r.dtype == torch.float32 and find_spec("numba"):
        from nearkin.search import numba_scan

        return numba_scan.scores_of(how, q, r, to_unit, rows, columns)
    return pair_scores(how, q, r, to_unit, rows, columns)


def _as_table(rows: Tensor, positions: Tensor, scores: Tensor, n: int) -> Neighbors:
    """Arrange pairs, sorted by row, in a table (n, width), with -1 and -inf where a row has fewer."""
    counts = torch.bincount(rows, minlength=n)
    place = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    width = int(counts.max()) if len(rows) else 0
    table = Neighbors(positions.new_full((n, width), -1), scores.new_full((n, width), -torch.inf))
    table.positions[rows, place], table.affinity[rows, place] = positions, scores
    return table


def _first_copies(x: Tensor, count: int) -> Tensor:
    """Positions of the rows that have fewer than `count` equal rows before them; the others can never be among the k nearest."""
    _, which = torch.unique(x, dim=0, return_inverse=True)
    which, order = which.sort(stable=True)
    first = torch.searchsorted(which, which)
    rank = torch.arange(len(x), device=x.device) - first
    kept: Tensor = order[rank < count].sort().values
    return kept


def _search_codes(sides: _Sides) -> Neighbors:
    """Search binary codes: pack them and count the bits that differ."""
    positions, distances = nearest_codes(pack(sides.queries), pack(sides.references), sides.k)
    return Neighbors(torch.from_numpy(positions), -torch.from_numpy(distances).to(sides.queries.dtype))


def _search_custom(affinity: Affinity, sides: _Sides) -> Neighbors:
    """Search under a custom affinity, block by block, in the precision it returns."""
    m, parts = len(sides.references), []
    for top in range(0, len(sides.queries), BLOCK):
        rows = slice(top, top + BLOCK)
        best: Neighbors | None = None
        for start in range(0, m, BLOCK):
            # The last block reaches back to full width: products of another shape round differently, and equal rows would differ.
            columns = slice(max(min(start, m - BLOCK), 0), start + BLOCK)
            near = affinity(sides.queries[rows], sides.references[columns])  # (rows, columns)
            hidden = sides.excluded.mask(rows, columns)
            near = near if hidden is None else near.masked_fill(hidden, -torch.inf)
            found = _top_k(near[:, start - columns.start :], sides.k)
            found = found._replace(positions=torch.where(found.affinity > -torch.inf, found.positions + start, -1))
            best = found if best is None else _merge(best, found, sides.k)
        assert best is not None
        parts.append(best)
    return Neighbors(torch.cat([p.positions for p in parts]), torch.cat([p.affinity for p in parts]))


def _top_k(near: Tensor, k: int) -> Neighbors:
    """Row-wise top k with ties to the earlier column, which torch.topk does not guarantee."""
    m = near.shape[1]
    if k >= m:
        values, columns = near.sort(dim=1, descending=True, stable=True)
        return Neighbors(columns, values)
    values, columns = near.topk(k + 1, dim=1)
    cut = values[:, k] == values[:, k - 1]  # a tie at the cut: topk may have kept any of them
    values, columns = values[:, :k], columns[:, :k]
    columns, by_column = columns.sort(dim=1)
    values, by_value = values.gather(1, by_column).sort(dim=1, descending=True, stable=True)
    columns = columns.gather(1, by_value)
    if bool(cut.any()):
        values, columns = values.clone(), columns.clone()
        full_values, full_columns = near[cut].sort(dim=1, descending=True, stable=True)
        values[cut], columns[cut] = full_values[:, :k], full_columns[:, :k]
    return Neighbors(columns, values)


def _merge(a: Neighbors, b: Neighbors, k: int) -> Neighbors:
    """Merge two results; the references of a come before those of b, and both are in order, so a stable sort keeps ties right."""
    values, order = torch.cat([a.affinity, b.affinity], 1).sort(dim=1, descending=True, stable=True)
    positions = torch.cat([a.positions, b.positions], 1).gather(1, order)
    return Neighbors(positions[:, :k], values[:, :k])
