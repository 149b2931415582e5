"""Smooth ranks: losses that smooth the measures of retrieval, average precision and recall."""

from nearkin.compose.affinity import Normalized, SquaredEuclidean, cosine
from nearkin.compose.ranks import BinnedPrecision, SmoothPrecision, SmoothRecall
from nearkin.compose.references import InBatch
from nearkin.compose.relation import SameLabel
from nearkin.compose.validation import check_positive, check_whole
from nearkin.objectives.neighborhood import NeighborhoodObjective


class FastAP(NeighborhoodObjective):
    """FastAP: 1 - average precision, with ranks from soft histograms of the distances.

        AP_i = 1/|P_i| sum_z h+_z H+_z / H_z,   h and H: soft counts in bin z, and up to it, of positives (+) and of all candidates

    It grows linearly with the batch; large batches give a better estimate of the ranking.

    Parameters
    ----------
    bins : int, default=10
        Bins of the range of squared distances of unit vectors, 0 to 4.

    Notes
    -----
    A composition. Queries without a positive are skipped.

    Differs: nothing known.

    References
    ----------
    [cakir2019fastap] eq. (9)-(10)

    Examples
    --------
    >>> import torch
    >>> from nearkin import FastAP
    >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    >>> FastAP()(embeddings, torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    """

    keys = ("cakir2019fastap",)

    def __init__(self, bins: int = 10) -> None:
        check_whole("bins", bins, 2)
        super().__init__(InBatch(), Normalized(SquaredEuclidean()), SameLabel(), BinnedPrecision(bins))


class SmoothAP(NeighborhoodObjective):
    """Smooth-AP: 1 - average precision, with ranks from sigmoids of differences of cosines.

        AP_i = 1/|P_i| sum_(j in P_i) R(j, P_i) / R(j, C_i),   R(j, S) = 1 + sum_(k in S, k != j) sigmoid((s_ik - s_ij) / temperature)

    P_i are the positives of query i, C_i all its candidates.

    Parameters
    ----------
    temperature : float, default=0.01
        Of the sigmoid. A higher value gives more pairs a gradient and is a looser approximation.

    Notes
    -----
    A composition. Time grows with the cube of the batch; memory does not, because rows are taken a few at a time.

    Differs: the query is no candidate of its own; the authors' code counts it as a positive, and needs classes of one size, sorted.

    References
    ----------
    [brown2020smoothap] eq. (6)

    Examples
    --------
    >>> import torch
    >>> from nearkin import SmoothAP
    >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> SmoothAP()(embeddings, torch.tensor([0, 0, 1, 1])) < 1e-6
    tensor(True)
    """

    keys = ("brown2020smoothap",)

    def __init__(self, temperature: float = 0.01) -> None:
        check_positive("temperature", temperature)
        super().__init__(InBatch(), cosine(), SameLabel(), SmoothPrecision(temperature))


class RecallAtK(NeighborhoodObjective):
    """Recall@k surrogate: 1 - recall at several k, with smooth ranks and a smooth step at k.

        recall_i(k) = 1/min(k, |P_i|) sum_(j in P_i) sigmoid((k - R(j, C_i)) / rank_temperature),   R as in SmoothAP
        loss = 1 - mean over k

    For batches of thousands: the paper trains with all of them in one step.

    Parameters
    ----------
    ks : tuple of int, default=(1, 2, 4, 8, 16)
        The k to average over.
    temperature : float, default=0.01
        Of the sigmoid over differences of cosines.
    rank_temperature : float, default=1.0
        Of the sigmoid over ranks.

    Notes
    -----
    A composition. Because sigmoid(0) is 1/2, a perfect ranking does not reach 0. Time grows with the cube of the batch.

    Differs: divided by min(k, |P|), so that recall can reach 1 for every k; the authors' mixing of embeddings is not here.

    References
    ----------
    [patel2022recall] eq. (5)-(7)

    Examples
    --------
    >>> import torch
    >>> from nearkin import RecallAtK
    >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> round(RecallAtK(ks=(2,))(embeddings, torch.tensor([0, 0, 1, 1])).item(), 4)  # 1 - sigmoid(2 - 1)
    0.2689
    """

    keys = ("patel2022recall",)

    def __init__(self, ks: tuple[int, ...] = (1, 2, 4, 8, 16), temperature: float = 0.01, rank_temperature: float = 1.0) -> None:
        ks = tuple(check_whole("ks", k) for k in ks)
        if not ks:
            raise ValueError("ks is empty; pass at least one k")
        check_positive("temperature", temperature)
        check_positive("rank_temperature", rank_temperature)
        super().__init__(InBatch(), cosine(), SameLabel(), SmoothRecall(ks, temperature, rank_temperature))
