"""Top-k precision: push the negatives out of the k nearest neighbors, and ignore everything else."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nearkin.compose.affinity import cosine, unit
from nearkin.compose.criterion import BestK
from nearkin.compose.references import CrossBatchMemory, InBatch
from nearkin.compose.relation import SameLabel
from nearkin.compose.validation import check_positive, check_whole
from nearkin.objectives.neighborhood import NeighborhoodObjective


class PrecisionAtK(NeighborhoodObjective):
    """Prec@k: the gap in summed cosine between the k nearest neighbors and the best k that were possible.

        s'_ij = cos(z_i, z_j) + margin [y_i != y_j]
        loss  = topsum_k(s') - [topsum_a(s' of positives) + topsum_(k-a)(s' of negatives)],   a = min(k, number of positives)

    Use it for retrieval, if all that counts is which samples are among the k nearest. Only negatives inside the top k and
    the positives that they displace have a gradient.

    Parameters
    ----------
    k : int, default=5
        Number of neighbors. Take the k at which you will search, or somewhat less. Queries with fewer than k candidates use
        all of them (counted in `objective.last.clamped`).
    margin : float, default=0.1
        Added to the cosine of every negative, so that positives must lead by that much.
    log_sum_exp : bool, default=False
        Add a soft top-1 term to every top-k sum, as the authors' released code does.
    covariance : float, default=0.0
        Weight of |Cov - I|_F of the unit embeddings, which keeps the embedding from collapsing. The released code has 0.1
        next to a sum over the C classes of a batch; here the term counts with each class, so 0.1 / C is theirs.
    class_balanced : bool, default=False
        Average within each class first, so that all classes count alike; reduction="sum" then sums the classes, as the
        released code does.
    memory : int, default=0
        How many embeddings of earlier batches every query can choose among as well. Needs `dimension`, and `ids=` in the
        call. Try a few thousand if batches are small, with a `memory_delay`.
    dimension : int, default=0
        The embedding's size; required with `memory`.
    memory_delay : int, default=0
        Steps before the memory counts. Without a delay the first, random embeddings are neighbors that training cannot move.
    memory_age : int, default=0
        Steps after which a remembered embedding no longer counts; 0 keeps it until its slot is needed.

    Notes
    -----
    The loss is an upper bound of margin times the number of negatives in the top k (theorem 1 of the paper). An embedding that
    has collapsed to one point is a stationary point, with loss k * margin. The released code departs from the paper; each
    departure is a parameter above, and its margin is 0.05 or 0.2.

    Differs: the mean over queries, not the sum; exactly k neighbors under ties, because with the printed >= theorem 1 is false.

    References
    ----------
    [lu2019sampling] eq. (4)-(10), in one closed form without cases
    [wang2020xbm] for the memory

    Examples
    --------
    >>> import torch
    >>> from nearkin import PrecisionAtK
    >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> objective = PrecisionAtK(k=1)
    >>> objective(embeddings, torch.tensor([0, 0, 1, 1]))  # every nearest neighbor is a positive
    tensor(0.)
    >>> objective(embeddings, torch.tensor([0, 1, 1, 0]), reduction="none")
    tensor([0.9955, 0.9955, 0.9955, 0.9955])
    """

    keys = ("lu2019sampling", "wang2020xbm")

    def __init__(
        self,
        k: int = 5,
        margin: float = 0.1,
        log_sum_exp: bool = False,
        covariance: float = 0.0,
        class_balanced: bool = False,
        memory: int = 0,
        dimension: int = 0,
        memory_delay: int = 0,
        memory_age: int = 0,
    ) -> None:
        check_whole("k", k)
        check_positive("margin", margin)
        if memory and dimension < 1:
            raise ValueError(f"dimension ({dimension}) must be the embedding's size, at least 1, for a memory of {memory}")
        super().__init__(
            references=CrossBatchMemory(memory, dimension, memory_delay, memory_age) if memory else InBatch(),
            affinity=cosine(),
            relation=SameLabel(),
            criterion=BestK(k, margin, log_sum_exp, class_balanced),
            penalty=CovarianceSpread(covariance) if covariance else None,
        )


@dataclass(frozen=True)
class CovarianceSpread:
    """weight * |Cov(unit embeddings) - I|_F: a penalty on collapsed batches."""

    weight: float

    def __call__(self, embeddings: Tensor) -> Tensor:
        centered = unit(embeddings)
        centered = centered - centered.mean(0)
        covariance = centered.T @ centered / max(len(centered) - 1, 1)
        excess: Tensor = covariance - torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
        spread: Tensor = self.weight * excess.square().sum().sqrt()
        return spread
