"""Rejection of queries that belong to no known class, at a rate of false rejections that you choose.

A query is as familiar as the mean affinity of its nearest references: of five, or of fewer where classes are small, so that all of them can
be of one class. Held-out points of known classes say how familiar a known one is: the
p-value of a query is the share of them that are no more familiar, counting the query itself. Queries with a p-value of at most `reject` are
rejected. If the held-out points and the query are exchangeable, at most that share of known queries is rejected, whatever the embedding
(split conformal prediction; Vovk, Gammerman and Shafer, 2005).
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity
from nearkin.compose.points import Points
from nearkin.compose.validation import check_share
from nearkin.search.exact import nearest

NEAREST = 5  # neighbors whose mean affinity says how familiar a query is, at most
SHARE = 20  # references of a class for each of these neighbors
FEWEST = 20  # held-out points below which no rate can be kept


class Rejection(NamedTuple):
    """How familiar held-out points of known classes are; `fit_rejection` makes one.

    Parameters
    ----------
    known : ndarray
        (c,) mean affinities of their nearest references, sorted.
    neighbors : int, default=5
        How many nearest references that is.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.search import Rejection
    >>> rule = Rejection(-np.arange(99.0)[::-1])
    >>> rule.p_values(np.array([-200.0, -98.0, 0.0]))
    array([0.01, 0.02, 1.  ])
    >>> rule.rejects(np.array([-200.0, -98.0, 0.0]), 0.015)
    array([ True, False, False])
    """

    known: np.ndarray
    neighbors: int = NEAREST

    def p_values(self, familiarity: np.ndarray) -> np.ndarray:
        """Compute the share of known points that are no more familiar than each query.

        Parameters
        ----------
        familiarity : ndarray
            (n,) mean affinities of the queries, as `familiarity` returns them.

        Returns
        -------
        ndarray
            (n,) in 0..1; small for queries of no known class.
        """
        return np.asarray((1 + np.searchsorted(self.known, familiarity, side="right")) / (1 + len(self.known)))

    def rejects(self, familiarity: np.ndarray, reject: float) -> np.ndarray:
        """Say which queries belong to no known class.

        Parameters
        ----------
        familiarity : ndarray
            (n,) as of `p_values`.
        reject : float
            The share of known queries that may be rejected, such as 0.05.

        Returns
        -------
        ndarray
            (n,) bool.
        """
        check_share("reject", reject, below_one=True)
        return np.asarray(self.p_values(familiarity) <= reject)


def neighbors_for(references: int, classes: int) -> int:
    """How many nearest references say how familiar a query is: a twentieth of the references of a class, at least 1 and at most 5."""
    return NEAREST if classes < 1 else min(NEAREST, max(1, references // classes // SHARE))


def familiarity(
    queries: Points | Tensor, references: Points | Tensor, affinity: Affinity | None = None, *, exclude_same_id: bool = False
) -> np.ndarray:
    """Compute the mean affinity of every query to its nearest references.

    They are five; of references with class labels as many as a twentieth of the points of a class, if that is less, but at least one.

    Parameters
    ----------
    queries : Points or Tensor
        (n, d).
    references : Points or Tensor
        (m, d) of known classes.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default.
    exclude_same_id : bool, default=False
        Leave out references with the id of the query.

    Returns
    -------
    ndarray
        (n,) float64; larger is more familiar.

    Examples
    --------
    >>> import torch
    >>> from nearkin.search import familiarity
    >>> familiarity(torch.tensor([[0.0], [9.0]]), torch.tensor([[0.0], [1.0], [1.0]])).round(2)
    array([ -0.67, -69.67])
    """
    near = nearest(queries, references, _neighbors_of(references), affinity, exclude_same_id=exclude_same_id).affinity.double()
    return mean_of_finite(near.cpu().numpy())


def _neighbors_of(references: Points | Tensor) -> int:
    labels = references.labels if isinstance(references, Points) else None
    if labels is None or labels.ndim != 1 or labels.is_floating_point():  # numbers and sets are no classes
        return NEAREST
    return neighbors_for(len(labels), len(torch.unique(labels)))


def mean_of_finite(affinity: np.ndarray) -> np.ndarray:
    """(n,) the mean over the neighbors (n, k) that are there; -inf without any."""
    there = np.isfinite(affinity)
    total = np.where(there, affinity, 0.0).sum(1)
    return np.where(there.any(1), total / np.maximum(there.sum(1), 1), -np.inf)


def fit_rejection(held_out: Points | Tensor, references: Points | Tensor, affinity: Affinity | None = None) -> Rejection:
    """Learn how familiar points of known classes are, from some that are held out.

    Parameters
    ----------
    held_out : Points or Tensor
        (c, d) of known classes, which the network was not trained on. With ids, a reference with the same id is left out, so that the
        references themselves can be passed where there is no other set.
    references : Points or Tensor
        (m, d).
    affinity : Affinity, optional
        As of `familiarity`.

    Returns
    -------
    Rejection

    Raises
    ------
    ValueError
        If there are fewer than 20 held-out points.

    Examples
    --------
    >>> import torch
    >>> from nearkin.search import familiarity, fit_rejection
    >>> generator = torch.Generator().manual_seed(0)
    >>> known, held_out = torch.randn(2, 100, 2, generator=generator)
    >>> rule = fit_rejection(held_out, known)
    >>> rule.rejects(familiarity(torch.tensor([[0.0, 0.0], [9.0, 9.0]]), known), 0.05)
    array([False,  True])
    """
    with_ids = isinstance(held_out, Points) and held_out.ids is not None and isinstance(references, Points) and references.ids is not None
    return rejection_of(familiarity(held_out, references, affinity, exclude_same_id=with_ids), _neighbors_of(references))


def rejection_of(known: np.ndarray, neighbors: int = NEAREST) -> Rejection:
    """The rule for known points (c,) that are this familiar, by so many neighbors."""
    if len(known) < FEWEST:
        raise ValueError(
            f"reject needs at least {FEWEST} held-out points of known classes, and there are {len(known)}; give more, or no reject"
        )
    return Rejection(np.sort(np.asarray(known, dtype=np.float64)), neighbors)
