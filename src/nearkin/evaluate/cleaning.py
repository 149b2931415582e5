"""Problems in data, found in their embeddings: probable label errors, duplicates, leaks between splits and outliers, in one table."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, unit
from nearkin.compose.points import Points, takes_arrays
from nearkin.compose.validation import check_share
from nearkin.data.cells import inert
from nearkin.evaluate.comparison import class_labels, finite
from nearkin.evaluate.label_errors import label_errors
from nearkin.evaluate.rendering import html_table
from nearkin.search import nearest

Kind = Literal["label", "duplicate", "near duplicate", "leak", "outlier"]
NEAR = 10  # neighbors of a point that are looked at
SAME = 1e-5  # distance over length from rounding: the same input, embedded twice
ALONE = 4.0  # spreads above the median from which a distance to the neighbors is an outlier's
COLUMNS = ("path", "label", "suggested", "accept", "kind", "score", "reason", "other", "part")


class Problem(NamedTuple):
    """One probable problem of one point.

    Parameters
    ----------
    row : int
        The point.
    kind : {"label", "duplicate", "near duplicate", "leak", "outlier"}
        What may be wrong.
    score : float
        How sure it is, from 0 to 1; comparable within a kind.
    reason : str
        Why, in words.
    other : int, default=-1
        The point that it copies, or -1.
    suggested : int, default=-1
        The class that it probably has, or -1.

    Examples
    --------
    >>> from nearkin.evaluate import Problem
    >>> Problem(3, "duplicate", 1.0, "the same vector as row 1", other=1).other
    1
    """

    row: int
    kind: Kind
    score: float
    reason: str
    other: int = -1
    suggested: int = -1


class Problems(NamedTuple):
    """What `clean` found.

    Parameters
    ----------
    rows : list of Problem
        Labels first, then leaks, duplicates and outliers, each the surest first.
    names : sequence of str
        Name of every point, such as its path.
    classes : sequence of str
        Class names by number.
    labels : Tensor, optional
        (n,) class numbers.
    split : ndarray, optional
        (n,) names of splits.
    notes : tuple of str
        What was left out, and why.

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import clean
    >>> clean(torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.5], [2.0, 3.0]])).counts
    {'duplicate': 1}
    """

    rows: list[Problem]
    names: Sequence[str]
    classes: Sequence[str]
    labels: Tensor | None
    split: np.ndarray | None
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Number of problems of each kind."""
        return dict(Counter(one.kind for one in self.rows))

    def as_rows(self) -> list[dict[str, Any]]:
        """Return one dict for each problem, with the columns of the CSV.

        Returns
        -------
        list of dict
            path, label, suggested, accept (empty), kind, score, reason, other, part.
        """
        return [
            {
                "path": self.names[one.row],
                "label": self._name(-1 if self.labels is None else int(self.labels[one.row])),
                "suggested": self._name(one.suggested),
                "accept": "",
                "kind": one.kind,
                "score": round(one.score, 4),
                "reason": one.reason,
                "other": self.names[one.other] if one.other >= 0 else "",
                "part": "" if self.split is None else str(self.split[one.row]),
            }
            for one in self.rows
        ]

    def to_csv(self) -> str:
        """Return the table as CSV, which `nearkin train --labels` takes back.

        A row counts once its `accept` is filled in: the suggested label is taken, or, for a copy or an outlier, the point is left out. A
        label that you edit counts at once.

        Returns
        -------
        str
        """
        file = io.StringIO(newline="")
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({name: inert(str(value)) for name, value in row.items()} for row in self.as_rows())
        return file.getvalue()

    def _name(self, number: int) -> str:
        return "" if number < 0 else str(self.classes[number]) if number < len(self.classes) else str(number)

    def _repr_html_(self) -> str:
        columns = [name for name in COLUMNS if name != "accept"]
        rows = [[str(row[name]) for name in columns] for row in self.as_rows()]
        found = ", ".join(f"{count:,} {kind}" for kind, count in self.counts.items()) or "nothing"
        return html_table(f"Probable problems among {len(self.names):,} points: {found}.", columns, rows)


@takes_arrays
@torch.no_grad()
def clean(
    embeddings: Tensor,
    labels: Tensor | None = None,
    affinity: Affinity | None = None,
    *,
    split: Sequence[str] | np.ndarray | None = None,
    names: Sequence[str] = (),
    classes: Sequence[str] = (),
    near: float = 0.25,
) -> Problems:
    """List probable label errors, duplicates, leaks between splits and outliers.

    Pass embeddings that were not trained on these labels, such as those of a pretrained encoder: see `label_errors`. Copies are found by
    one exact search, whose memory grows with the number of points only.

    Parameters
    ----------
    embeddings : Tensor or ndarray (n, d)
        One row for each point.
    labels : Tensor or ndarray (n,), optional
        Classes as whole numbers, -1 where the class is unknown. Without them no labels are judged.
    affinity : Affinity, optional
        `cosine()` compares directions; otherwise Euclidean distances are used.
    split : sequence of str, optional
        (n,) name of the split of each point, such as train and test. A copy in another split is a leak.
    names : sequence of str, optional
        (n,) name of each point for the table, such as its path; by default "row 0" and so on.
    classes : sequence of str, optional
        Class names by number.
    near : float, default=0.25
        Two points are near duplicates if their distance is at most this share of the median distance of a point to its nearest neighbor.

    Returns
    -------
    Problems

    Raises
    ------
    ValueError
        If sizes do not fit, a number is not finite, or `near` is no share.

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import clean
    >>> x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)) + torch.arange(60)[:, None] % 2 * 9
    >>> y = torch.arange(60) % 2
    >>> y[7], x[9], x[20] = 0, x[3], 60.0
    >>> for one in clean(x, y, classes=("cat", "dog")).rows:
    ...     print(one.row, one.kind, one.reason)
    7 label other points say dog, not cat
    9 duplicate the same as row 3
    20 outlier 74 times as far from its neighbors as most points
    """
    x = finite(embeddings, "embeddings")
    check_share("near", near)
    given = None if labels is None else class_labels(labels, len(x), "labels")
    parts = None if split is None else np.asarray(split, dtype=np.str_)
    for name, values in (("split", parts), ("names", names)):
        if values is not None and len(values) not in ((len(x),) if name == "split" else (0, len(x))):
            raise ValueError(f"{name} has {len(values)} entries for {len(x)} embeddings; give one for each")
    called = names if len(names) else [f"row {row}" for row in range(len(x))]
    found = Problems([], called, classes, given, parts)
    notes = [] if given is None else _labels(found, x, given, affinity)
    if len(x) > 1:
        _copies_and_outliers(found, unit(x) if getattr(affinity, "metric", None) == "cosine" else x, near)
    return found._replace(notes=tuple(notes))


def _labels(found: Problems, x: Tensor, labels: Tensor, affinity: Affinity | None) -> list[str]:
    """Add the labels that the judge contradicts; returns notes."""
    try:
        judged = label_errors(x, labels, affinity)
    except ValueError as error:
        return [f"No label was judged: {error}."]
    sure = judged.confidence
    for row in judged.suspects.tolist():
        new, old = int(judged.suggested[row]), int(labels[row])
        reason = f"other points say {found._name(new)}, not {found._name(old)}"
        found.rows.append(Problem(row, "label", float(sure[row]), reason, suggested=new))
    alone = int((judged.margin.isnan() & (labels >= 0)).sum())
    return [f"{alone:,} labels were not judged: no other point has them."] if alone else []


def _copies_and_outliers(found: Problems, x: Tensor, near: float) -> None:
    """Add leaks, duplicates and outliers, from the nearest neighbors of every point."""
    ids = torch.arange(len(x))
    points = Points(x, ids=ids)
    positions = nearest(points, points, min(NEAR, len(x) - 1), exclude_same_id=True).positions  # (n, k)
    apart = torch.stack([(x - x[column]).norm(dim=1) for column in positions.T], dim=1)  # from differences, exact for copies
    lengths = x.norm(dim=1).clamp_min(1e-30)
    same = apart <= SAME * lengths[:, None]
    typical = apart[:, 0][~same[:, 0]]
    limit = near * float(typical.median()) if len(typical) else 0.0
    first = _first_copies(positions, same | (apart <= limit))
    rows = (first != ids).nonzero()[:, 0]
    gaps = (x[rows] - x[first[rows]]).norm(dim=1)
    copies = [
        _copy(found, *one, limit) for one in zip(rows.tolist(), first[rows].tolist(), gaps.tolist(), lengths[rows].tolist(), strict=True)
    ]
    order = ("leak", "duplicate", "near duplicate")
    found.rows.extend(sorted(copies, key=lambda one: (order.index(one.kind), -one.score, one.row)))
    found.rows.extend(_outliers(apart, first == ids))


def _first_copies(positions: Tensor, close: Tensor) -> Tensor:
    """(n,) the earliest point of each group of copies; pairs are (row, positions[row, j]) where close[row, j]."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    n = len(positions)
    a, column = close.nonzero(as_tuple=True)
    links = coo_matrix((np.ones(len(a), np.bool_), (a.numpy(), positions[a, column].numpy())), shape=(n, n))
    group = torch.from_numpy(connected_components(links, directed=False)[1].astype(np.int64))
    first = torch.full((int(group.max()) + 1,), n).scatter_reduce_(0, group, torch.arange(n), "amin")
    return first[group]


def _copy(found: Problems, row: int, other: int, gap: float, length: float, limit: float) -> Problem:
    """A copy, with a leak if it is in another split, and a word on labels that differ."""
    exact = gap <= SAME * length
    reason = f"{'the same as' if exact else 'nearly the same as'} {found.names[other]}"
    kind: Kind = "duplicate" if exact else "near duplicate"
    if found.split is not None and found.split[row] != found.split[other]:
        kind, reason = "leak", f"{reason} of the {found.split[other]} part"
    labels = found.labels
    if labels is not None and labels[row] != labels[other] and min(int(labels[row]), int(labels[other])) >= 0:
        reason += f", but labeled {found._name(int(labels[row]))} instead of {found._name(int(labels[other]))}"
    return Problem(row, kind, 1.0 if exact else max(0.0, 1 - gap / max(2 * limit, 1e-30)), reason, other=other)


def _outliers(apart: Tensor, first: Tensor) -> list[Problem]:
    """Points that are much farther from their neighbors than most points are, farthest first."""
    mean = apart.mean(1)
    logs = mean.clamp_min(1e-30).log()
    middle = logs[first].median()
    spread = 1.4826 * float((logs[first] - middle).abs().median())
    times = (logs - middle).exp()
    rows = ((logs - middle > ALONE * spread) & (times > 1.5) & first).nonzero()[:, 0]
    rows = rows[times[rows].argsort(descending=True, stable=True)]
    text = "{} times as far from its neighbors as most points"
    return [Problem(row, "outlier", 1 - 1 / float(times[row]), text.format(f"{float(times[row]):.2g}")) for row in rows.tolist()]
