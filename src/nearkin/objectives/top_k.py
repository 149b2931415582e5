"""Top-k precision: push the wrong neighbors out of the k nearest, and look at nothing else."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nearkin.compose.affinity import cosine, unit
from nearkin.compose.criterion import BestK
from nearkin.compose.references import CrossBatchMemory, InBatch
from nearkin.compose.relation import SameLabel, SameLabelOfFilled
from nearkin.compose.validation import check_positive, check_whole
from nearkin.objectives.neighborhood import NeighborhoodObjective


class PrecisionAtK(NeighborhoodObjective):
    """Prec@k: the gap in summed cosine between the k nearest and the best k there could be.

        s'_ij = cos(z_i, z_j) + margin [y_i != y_j]
        loss  = topsum_k(s') - [topsum_a(s' of kin) + topsum_(k-a)(s' of others)],   a = min(k, number of kin)

    An upper bound of margin times the wrong neighbors in the top k (Theorem 1). A collapsed embedding is a stationary
    point, with loss k * margin in this form. The authors' released code departs from their text; each departure is an option:
    `log_sum_exp` adds a soft top-1 term to every top-k sum, `covariance` adds that weight times |Cov - I|_F of the unit
    embeddings, and `class_balanced` takes the mean of every class (reduction="sum" sums them, as there); margin 0.05 or 0.2 there.
    Their covariance term, 0.1 of it, stands beside a sum over the C classes of a batch; here it counts with each: 0.1 / C is theirs.
    `memory` lets every query choose among that many embeddings of earlier batches, too; it needs the embedding's `dimension`.
    [lu2019sampling] eq. (4)-(10), in one closed form without cases; [wang2020xbm] for the memory
    Differs: the mean over queries, not the sum; exactly k neighbors under ties (with the printed >= Theorem 1 is false).
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
    ) -> None:
        check_whole("k", k)
        check_positive("margin", margin)
        if memory and dimension < 1:
            raise ValueError(f"dimension ({dimension}) must be the embedding's size, at least 1, for a memory of {memory}")
        super().__init__(
            references=CrossBatchMemory(memory, dimension) if memory else InBatch(),
            affinity=cosine(),
            relation=SameLabelOfFilled() if memory else SameLabel(),
            criterion=BestK(k, margin, log_sum_exp, class_balanced),
            penalty=CovarianceSpread(covariance) if covariance else None,
        )


@dataclass(frozen=True)
class CovarianceSpread:
    """weight * |Cov(unit embeddings) - I|_F, which a collapsed batch pays for; the identity itself is out of reach."""

    weight: float

    def __call__(self, embeddings: Tensor) -> Tensor:
        centerd = unit(embeddings)
        centerd = centerd - centerd.mean(0)
        covariance = centerd.T @ centerd / max(len(centerd) - 1, 1)
        excess: Tensor = covariance - torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
        spread: Tensor = self.weight * excess.square().sum().sqrt()
        return spread
