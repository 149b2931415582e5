"""Pair weighting: losses over all pairs of a batch that differ in how much each pair counts."""

import torch

from nearkin.compose.affinity import Affinity, Euclidean, Normalized, cosine
from nearkin.compose.pair_weights import (
    BalancedPairs,
    CirclePairs,
    HistogramOverlap,
    MultiSimilarityPairs,
    ProxyPairs,
    RankedPairs,
    ThresholdPairs,
    TupletPairs,
)
from nearkin.compose.references import InBatch, Proxies
from nearkin.compose.relation import SameLabel
from nearkin.compose.several_vectors import SignalToNoise
from nearkin.compose.validation import check_positive, check_share, check_whole
from nearkin.objectives.margin_softmax import check_angle
from nearkin.objectives.neighborhood import NeighborhoodObjective


class MultiSimilarity(NeighborhoodObjective):
    """Multi-similarity loss: hard pairs only, each weighted by its own cosine and by the other pairs of its query.

        1/alpha log(1 + sum_P exp(-alpha (s - base))) + 1/beta log(1 + sum_N exp(beta (s - base))),   s = cosine
        P: positives with s < max negative + epsilon,   N: negatives with s > min positive - epsilon

    A strong baseline of retrieval benchmarks. Draw several samples of each class.

    Parameters
    ----------
    alpha : float, default=2.0
        Weight of positives: how sharply far positives stand out.
    beta : float, default=50.0
        Weight of negatives: how sharply near negatives stand out.
    base : float, default=0.5
        The cosine that pairs are compared with. The authors use 1.0 for some data; start with 0.5.
    epsilon : float or None, default=0.1
        Margin of the mining; None uses all pairs.

    Notes
    -----
    A composition; the mining is part of the criterion. Every query counts in the mean, also one whose pairs are all easy.

    Differs: nothing known.

    References
    ----------
    [wang2019multisimilarity] eq. (11)-(13)

    Examples
    --------
    >>> import torch
    >>> from nearkin import MultiSimilarity
    >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> MultiSimilarity()(embeddings, torch.tensor([0, 0, 1, 1]))  # no pair is hard
    tensor(0.)
    """

    keys = ("wang2019multisimilarity",)

    def __init__(self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float | None = 0.1) -> None:
        check_positive("alpha", alpha)
        check_positive("beta", beta)
        super().__init__(InBatch(), cosine(), SameLabel(), MultiSimilarityPairs(alpha, beta, base, epsilon))


class Circle(NeighborhoodObjective):
    """Circle loss: every positive against every negative, each with a weight that grows with its distance from its optimum.

        log(1 + sum_N exp(gamma a_n (s_n - m)) sum_P exp(-gamma a_p (s_p - 1 + m))),   a_n = [s_n + m]+,   a_p = [1 + m - s_p]+

    s are cosines, m the margin, gamma = 1 / temperature. The decision boundary of positive and negative cosine is a circle.

    Parameters
    ----------
    margin : float, default=0.4
        m: positives should exceed 1 - m, negatives stay below m. 0.25 for faces and people.
    temperature : float, default=1/80
        Divides the weighted cosines. 1/256 for faces, 1/128 for people.

    Notes
    -----
    A composition. Queries without a positive or a negative are skipped.

    Differs: one sum over the pairs of each query, then the mean over queries.

    References
    ----------
    [sun2020circle] eq. (4)-(6), (8)

    Examples
    --------
    >>> import torch
    >>> from nearkin import Circle
    >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(Circle(margin=0.5, temperature=1.0)(embeddings, torch.tensor([0, 0, 1, 1])).item(), 4)  # log(1 + 2 exp(-1/2))
    0.7944
    """

    keys = ("sun2020circle",)

    def __init__(self, margin: float = 0.4, temperature: float = 1 / 80) -> None:
        check_share("margin", margin)
        check_positive("temperature", temperature)
        super().__init__(InBatch(), cosine(), SameLabel(), CirclePairs(margin, temperature))


class TupletMargin(NeighborhoodObjective):
    """Tuplet margin loss: each positive against all negatives in a softmax of cosines, with some slack in the angle of the positive.

        mean over positive pairs (i, j) of log(1 + sum_(k in N_i) exp((cos(theta_ik) - cos(theta_ij - slack)) / temperature))

    The slack keeps the hardest positives, often outliers, from dominating.

    Parameters
    ----------
    slack : float, default=0.1
        What is taken off the angle of a positive, in radians.
    temperature : float, default=1/64
        Divides the cosines.

    Notes
    -----
    A composition. The unit is the pair: the mean is over positive pairs. The paper adds an intra-pair variance term; it is not here.

    Differs: every positive pair of the batch, not one for each query.

    References
    ----------
    [yu2019tuplet] eq. (5)

    Examples
    --------
    >>> import torch
    >>> from nearkin import TupletMargin
    >>> objective = TupletMargin(slack=0.0, temperature=1.0)
    >>> round(objective(torch.eye(4), torch.tensor([0, 0, 1, 1])).item(), 4)  # log(1 + 2)
    1.0986
    """

    keys = ("yu2019tuplet",)

    def __init__(self, slack: float = 0.1, temperature: float = 1 / 64) -> None:
        check_angle("slack", slack)
        check_positive("temperature", temperature)
        super().__init__(InBatch(), cosine(), SameLabel(), TupletPairs(slack, temperature))


class MarginLoss(NeighborhoodObjective):
    """Margin loss: positives inside a distance beta and negatives outside it, each by a margin; beta can be learned.

        positive: [d - beta + margin]+,   negative: [beta - d + margin]+,   the mean over what is active

    The threshold beta is also the one to decide "same or not" with after training.

    Parameters
    ----------
    margin : float, default=0.2
        How far inside or outside of beta a pair must be.
    beta : float, default=1.2
        The threshold, a distance of unit vectors; where it starts, if it is learned.
    learn_beta : bool, default=True
        Learn beta as a parameter. Give `objective.parameters()` to the optimizer.
    nu : float, default=0.0
        Weight of beta itself in the loss, which keeps it from growing.
    normalize : bool, default=True
        Scale the embeddings to unit length first.

    Notes
    -----
    A composition; beta is the parameter `criterion.beta`. All pairs of the batch: a positive counts once for every negative of its query
    and the other way round. The mean is over the active ones, so its gradient does not fade as they become fewer.

    Differs: one beta for all classes; all pairs instead of one distance-weighted negative for each positive, for which see
    `Triplet("distance-weighted")`.

    References
    ----------
    [wu2017sampling] eq. (5)-(7)

    Examples
    --------
    >>> import torch
    >>> from nearkin import MarginLoss
    >>> embeddings, labels = torch.tensor([[0.0], [1.0], [1.5]]), torch.tensor([0, 0, 1])
    >>> objective = MarginLoss(margin=0.1, beta=1.0, normalize=False)
    >>> round(objective(embeddings, labels).item(), 4)  # 0.1 twice for the pair at distance 1, 0.6 for the negative at 0.5
    0.2667
    """

    keys = ("wu2017sampling",)

    def __init__(self, margin: float = 0.2, beta: float = 1.2, learn_beta: bool = True, nu: float = 0.0, normalize: bool = True) -> None:
        check_positive("margin", margin)
        check_positive("beta", beta)
        affinity: Affinity = Normalized(Euclidean()) if normalize else Euclidean()
        super().__init__(InBatch(), affinity, SameLabel(), ThresholdPairs(margin, beta, learn_beta, nu))


class RankedList(NeighborhoodObjective):
    """Ranked list loss: positives inside one distance, negatives outside a larger one; nearer negatives weigh more.

        (1 - balance) sum_P w_p [d - (boundary - margin)]+ / sum w_p + balance sum_N w_n [boundary - d]+ / sum w_n
        w_p = exp(positive_sharpness (d - (boundary - margin))),   w_n = exp(sharpness (boundary - d)),   over the pairs that violate

    Classes keep their shape: positives are only pulled inside a ball, not to a point.

    Parameters
    ----------
    margin : float, default=0.4
        Between the two distances of unit vectors.
    boundary : float, default=1.2
        The distance that negatives should exceed.
    sharpness : float, default=10.0
        How much more a nearer negative weighs; the authors' T_n.
    positive_sharpness : float, default=0.0
        How much more a farther positive weighs; the authors' T_p.
    balance : float, default=0.5
        Share of the negatives.

    Notes
    -----
    A composition. Every query counts in the mean, also one without violations.

    Differs: the gradient flows through the weights.

    References
    ----------
    [wang2019rankedlist] eq. (3)-(8)

    Examples
    --------
    >>> import torch
    >>> from nearkin import RankedList
    >>> round(RankedList()(torch.eye(4), torch.tensor([0, 0, 1, 1])).item(), 4)  # (sqrt 2 - 0.8) / 2; negatives are far enough
    0.3071
    """

    keys = ("wang2019rankedlist",)

    def __init__(
        self,
        margin: float = 0.4,
        boundary: float = 1.2,
        sharpness: float = 10.0,
        positive_sharpness: float = 0.0,
        balance: float = 0.5,
    ) -> None:
        check_positive("margin", margin)
        check_positive("boundary", boundary)
        check_share("balance", balance)
        criterion = RankedPairs(margin, boundary, sharpness, positive_sharpness, balance)
        super().__init__(InBatch(), Normalized(Euclidean()), SameLabel(), criterion)


class SignalToNoiseContrastive(NeighborhoodObjective):
    """Contrastive loss on the signal-to-noise distance, the variance of the difference over the variance of the query.

        d_ij = var(z_i - z_j) / var(z_i);   same class: d,   different: [margin - d]+;   the mean of each over its active pairs, added

    The distance is not symmetric, and a constant added to all coordinates of an embedding changes nothing.

    Parameters
    ----------
    margin : float, default=1.0
        Distance beyond which a negative costs nothing.
    mean : float, default=0.0
        Weight of the absolute mean of the coordinates, the paper's regularizer.

    Notes
    -----
    A composition. Values belong to the batch: they are divided by its numbers of active pairs.

    Differs: the mean over active pairs, as in pytorch-metric-learning, not over all.

    References
    ----------
    [yuan2019snr] eq. (7), (11)

    Examples
    --------
    >>> import torch
    >>> from nearkin import SignalToNoiseContrastive
    >>> embeddings = torch.tensor([[1.0, -1.0], [2.0, -2.0], [-1.0, 1.0]])
    >>> SignalToNoiseContrastive()(embeddings, torch.tensor([0, 0, 1])).round(decimals=4)  # (1 + 1/4) / 2; negatives are far
    tensor(0.6250)
    """

    keys = ("yuan2019snr",)

    def __init__(self, margin: float = 1.0, mean: float = 0.0) -> None:
        check_positive("margin", margin)
        penalty = None if mean == 0 else CoordinateMean(mean)
        super().__init__(InBatch(), SignalToNoise(), SameLabel(), BalancedPairs(margin), penalty)


class CoordinateMean:
    """weight * mean |mean of the coordinates|: a penalty on embeddings whose coordinates do not sum to zero."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, embeddings: torch.Tensor) -> torch.Tensor:
        return self.weight * embeddings.mean(1).abs().mean()


class Histogram(NeighborhoodObjective):
    """Histogram loss: the probability that a random negative pair has a larger cosine than a random positive pair.

        sum_r p_neg(r) sum_(q <= r) p_pos(q),   p by soft histograms of the cosines of all pairs

    Nothing to tune. It needs batches large enough for histograms: some hundred points.

    Parameters
    ----------
    bins : int, default=100
        Bins of the range of cosines, -1 to 1.

    Notes
    -----
    A composition. The value belongs to the batch: every pair is compared with all.

    Differs: nothing known.

    References
    ----------
    [ustinova2016histogram] eq. (2)-(4)

    Examples
    --------
    >>> import torch
    >>> from nearkin import Histogram
    >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> Histogram()(embeddings, torch.tensor([0, 0, 1, 1]))  # every positive pair is nearer than every negative one
    tensor(0.)
    """

    keys = ("ustinova2016histogram",)

    def __init__(self, bins: int = 100) -> None:
        check_whole("bins", bins, 2)
        super().__init__(InBatch(), cosine(), SameLabel(), HistogramOverlap(bins))


class ProxyAnchor(NeighborhoodObjective):
    """Proxy-Anchor: every learned proxy against all samples of the batch, so that hard samples weigh more.

        1/|C+| sum_(c in C+) log(1 + sum_(i in c) exp(-(s_ic - margin) / temperature))
        + 1/C sum_c log(1 + sum_(i not in c) exp((s_ic + margin) / temperature)),   s = cosine

    C+ are the classes in the batch. It converges faster than `ProxyNCA`, because samples of a batch are weighed against each other.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    margin : float, default=0.1
        Added to what is asked of both sides.
    temperature : float, default=1/32
        Divides the cosines.

    Notes
    -----
    A composition: its criterion sums over columns, where others sum over rows. The value belongs to the batch, and with reduction="none"
    every query has the same. The proxies are the parameter `references.vectors`, (C, d); give them a learning rate some hundred times that
    of the network.

    Differs: nothing known.

    References
    ----------
    [kim2020proxyanchor] eq. (4)

    Examples
    --------
    >>> import torch
    >>> from nearkin import ProxyAnchor
    >>> _ = torch.manual_seed(0)
    >>> objective = ProxyAnchor(num_classes=10, dimension=4)
    >>> loss = objective(torch.randn(3, 4), torch.tensor([7, 0, 2]))
    >>> objective.last.valid
    3
    """

    keys = ("kim2020proxyanchor",)

    def __init__(self, num_classes: int, dimension: int, margin: float = 0.1, temperature: float = 1 / 32) -> None:
        check_positive("temperature", temperature)
        super().__init__(Proxies(num_classes, dimension), cosine(), SameLabel(), ProxyPairs(margin, temperature))
