"""CSLS and local scaling: affinities that are corrected for hubs, references that are near to everything.

Both change a score by numbers of the query and of the reference alone. So the corrected score is the inner product of vectors with two more
dimensions, and every function that takes points and an affinity, `nearest` and all of `nearkin.evaluate`, takes the corrected ones.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, InnerProduct, SquaredEuclidean, unit
from nearkin.compose.metrics import product_form
from nearkin.compose.points import Points
from nearkin.compose.validation import check_choice, check_whole
from nearkin.search.exact import nearest

Method = Literal["csls", "local_scaling"]
METHODS = get_args(Method)


class Rescaled(NamedTuple):
    """Queries and references whose inner product ranks by the corrected affinity.

    Parameters
    ----------
    queries : Points
        (n, d + 2) float64.
    references : Points
        (m, d + 2) float64.
    affinity : Affinity
        The inner product.

    Examples
    --------
    >>> import torch
    >>> from nearkin.search import rescaled
    >>> rescaled(torch.zeros(2, 3), torch.eye(3), k=1).references.embeddings.shape
    torch.Size([3, 5])
    """

    queries: Points
    references: Points
    affinity: Affinity


@torch.no_grad()
def rescaled(
    queries: Points | Tensor, references: Points | Tensor, affinity: Affinity | None = None, method: Method = "csls", k: int = 10
) -> Rescaled:
    """Correct an affinity for hubs.

    With s(q, r) the affinity and h(r) how near r is to the other references:

    - "csls": 2 s(q, r) - h(r), with h(r) the mean affinity of r to its k nearest other references.
    - "local_scaling": -d(q, r)^2 / h(r), with h(r) the distance of r to its k-th nearest other reference; for cosines
      d(q, r)^2 = 2 - 2 cos.

    The terms of the query alone, which CSLS subtracts and local scaling divides by, do not change its ranking and are left out. Both papers
    take h over the queries; here it is taken over the references, so that a ranking does not depend on what else is searched.

    Parameters
    ----------
    queries : Points or Tensor (n, d)
        The queries.
    references : Points or Tensor (m, d)
        The references.
    affinity : Affinity, optional
        Squared Euclidean (the default), cosine or the inner product. Local scaling needs a distance: not the inner product.
    method : {"csls", "local_scaling"}, default="csls"
        The correction.
    k : int, default=10
        Number of neighbors behind h.

    Returns
    -------
    Rescaled
        What `nearest` and the functions of `nearkin.evaluate` take instead.

    Raises
    ------
    ValueError
        If the affinity is another one.

    Examples
    --------
    >>> import torch
    >>> from nearkin import nearest
    >>> from nearkin.search import rescaled
    >>> references = torch.tensor([[0.0, 0.0], [3.0, 0.0], [-3.0, 0.0], [0.0, 9.0]])  # the first is near to all
    >>> query = torch.tensor([[0.0, 4.0]])
    >>> nearest(query, references, k=1).positions.item()
    0
    >>> queries, corrected, affinity = rescaled(query, references, k=1)
    >>> nearest(queries, corrected, 1, affinity).positions.item()
    3
    """
    check_choice("method", method, METHODS)
    check_whole("k", k)
    form = product_form(affinity or SquaredEuclidean())
    if form is None or form.root or (method == "local_scaling" and not form.squared and not form.unit_references):
        fix = "use squared Euclidean distances or cosines" + (", or csls" if method == "local_scaling" else " or inner products")
        raise ValueError(f"affinity ({affinity!r}) cannot be corrected by {method}; {fix}")
    mine, theirs = (one if isinstance(one, Points) else Points(one) for one in (queries, references))
    q, r = mine.embeddings.double(), theirs.embeddings.double()
    q, r = (unit(q) if form.unit_queries else q), (unit(r) if form.unit_references else r)
    own = Points(r, ids=torch.arange(len(r), device=r.device))
    near = nearest(own, own, min(k, max(1, len(r) - 1)), InnerProduct() if not form.squared else SquaredEuclidean(), exclude_same_id=True)
    near_affinity = torch.where(near.positions >= 0, near.affinity.double(), 0.0)  # a lone reference has no other one
    one, squares = torch.ones_like(q[:, :1]), q.square().sum(1, keepdim=True)
    lengths = r.square().sum(1, keepdim=True)
    if method == "csls":
        h = near_affinity.mean(1, keepdim=True)
        if form.squared:  # 2 (2 q.r - |r|^2 - |q|^2) - h
            sides = torch.cat([q, one, squares], 1), torch.cat([4 * r, -2 * lengths - h, torch.full_like(h, -2.0)], 1)
        else:
            sides = torch.cat([q, one, squares], 1), torch.cat([2 * r, -h, torch.zeros_like(h)], 1)
    else:
        last = near_affinity[:, -1:]
        h = (-last if form.squared else 2 - 2 * last).clamp_min(1e-300).sqrt()  # duplicates have distance 0: they stay nearest
        sides = torch.cat([q, one, squares], 1), torch.cat([2 * r, -lengths, -torch.ones_like(h)], 1) / h
    return Rescaled(mine._replace(embeddings=sides[0]), theirs._replace(embeddings=sides[1]), InnerProduct())
