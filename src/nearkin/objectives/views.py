"""Two views of every sample, without labels.

VICReg and Barlow Twins compare statistics of the whole batch, coordinate by coordinate, not affinities of points, so they are objectives of
their own.
"""

from abc import abstractmethod

import torch
from torch import Tensor

from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.relation import Supervision
from nearkin.compose.validation import check_positive
from nearkin.objectives import inputs
from nearkin.objectives.objective import Objective


class TwoViews(Objective):
    """Base of losses over two views of every sample: two rows with the same id."""

    @property
    def supervision(self) -> Supervision:
        return "ids"

    def paired(self, batch: Points, references: Points | None) -> tuple[Points, Points]:
        """Return the first and the second view of every sample, (n / 2, d) each, by the order of their ids."""
        if references is not None:
            raise ValueError(f"{type(self).__name__} compares the views of a batch and takes no references=; leave it out")
        if batch.ids is None:
            raise ValueError("ids are missing: the two views of a sample are known by its id; pass ids=, each twice")
        inputs.check_twice(batch.ids)
        order = batch.ids.argsort(stable=True)
        views, ids = batch.embeddings[order], batch.ids[order]
        return Points(views[0::2], None, ids[0::2]), Points(views[1::2], None, ids[1::2])


class WholeBatch(TwoViews):
    """Base of those whose value belongs to the batch."""

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        first, second = self.paired(batch, references)
        value = self.compare(first.embeddings, second.embeddings)
        rows = len(batch.embeddings)
        return Outcome(value.expand(rows), torch.ones_like(batch.embeddings[:, 0]), torch.full((), rows, device=value.device))

    @abstractmethod
    def compare(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the value of a batch from its two views, (n / 2, d) each, in the same order."""


class VICReg(WholeBatch):
    """VICReg: two views agree, every coordinate varies, and coordinates are uncorrelated.

        invariance mean |a - b|^2 / d + variance (V(a) + V(b)) / 2 + covariance (C(a) + C(b))
        V(z) = mean_j [1 - sqrt(var(z_j) + eps)]+,   C(z) = sum_(j != k) cov(z_j, z_k)^2 / d

    A baseline for data without labels. Use it on wide outputs, some thousand coordinates.

    Parameters
    ----------
    invariance : float, default=25.0
        Weight of the agreement of the views.
    variance : float, default=25.0
        Weight of the spread of every coordinate.
    covariance : float, default=1.0
        Weight of the correlations.
    eps : float, default=0.0001
        Added to variances, because the root has an infinite gradient at 0, where a collapsed coordinate is.

    Notes
    -----
    Call it with both views in one batch, `objective(torch.cat([a, b]), ids=torch.cat([ids, ids]))`; in `nearkin train` set views=2. Of two
    rows with the same id the first is the first view. The value belongs to the batch: with reduction="none" every row has the same.

    Differs: the variance term is the mean of both views, as in the authors' code.

    References
    ----------
    [bardes2022vicreg] eq. (1)-(6)

    Examples
    --------
    >>> import torch
    >>> from nearkin import VICReg
    >>> _ = torch.manual_seed(0)
    >>> a, ids = 10 * torch.randn(8, 2), torch.arange(8)
    >>> loss = VICReg(covariance=0.0)(torch.cat([a, a]), ids=torch.cat([ids, ids]))
    >>> float(loss)  # the views agree, and every coordinate varies
    0.0
    """

    keys = ("bardes2022vicreg",)

    def __init__(self, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0, eps: float = 1e-4) -> None:
        super().__init__()
        check_positive("eps", eps)
        self.invariance, self.variance, self.covariance, self.eps = invariance, variance, covariance, eps

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        return super().outcome(batch._replace(embeddings=inputs.check_fourth_powers(batch.embeddings)), references)

    def compare(self, first: Tensor, second: Tensor) -> Tensor:
        apart = (first - second).square().mean()
        return self.invariance * apart + self._spread(first) + self._spread(second)

    def _spread(self, view: Tensor) -> Tensor:
        n, d = view.shape
        centered = view - view.mean(0)
        covariance = centered.T @ centered / max(n - 1, 1)  # (d, d)
        own = covariance.diagonal()
        short = (1 - (own + self.eps).sqrt()).clamp_min(0).mean() / 2
        mixed = (covariance.square().sum() - own.square().sum()) / d
        return self.variance * short + self.covariance * mixed


class BarlowTwins(WholeBatch):
    """Barlow Twins: the cross-correlation of two views is the identity.

        sum_j (1 - c_jj)^2 + redundancy sum_(j != k) c_jk^2,   c: correlations of the coordinates of the two views over the batch

    A baseline for data without labels. Use it on wide outputs, some thousand coordinates.

    Parameters
    ----------
    redundancy : float, default=0.0051
        Weight of the correlations of different coordinates.
    eps : float, default=0.00001
        Added to variances, so that a coordinate that is constant over the batch has a correlation of 0; that of batch normalization.

    Notes
    -----
    Call it with both views in one batch, `objective(torch.cat([a, b]), ids=torch.cat([ids, ids]))`; in `nearkin train` set views=2. Of two
    rows with the same id the first is the first view. The value belongs to the batch: with reduction="none" every row has the same.

    Differs: nothing known.

    References
    ----------
    [zbontar2021barlow] eq. (1)-(2)

    Examples
    --------
    >>> import torch
    >>> from nearkin import BarlowTwins
    >>> a, ids = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]), torch.arange(4)
    >>> loss = BarlowTwins()(torch.cat([a, a]), ids=torch.cat([ids, ids]))
    >>> bool(loss < 1e-8)
    True
    """

    keys = ("zbontar2021barlow",)

    def __init__(self, redundancy: float = 0.0051, eps: float = 1e-5) -> None:
        super().__init__()
        check_positive("redundancy", redundancy)
        check_positive("eps", eps)
        self.redundancy, self.eps = redundancy, eps

    def compare(self, first: Tensor, second: Tensor) -> Tensor:
        a, b = (self._standardized(view) for view in (first, second))
        correlation = a.T @ b / len(a)
        own = correlation.diagonal()
        return (own - 1).square().sum() + self.redundancy * (correlation.square().sum() - own.square().sum())

    def _standardized(self, view: Tensor) -> Tensor:
        centered = view - view.mean(0)
        return centered / (centered.square().mean(0) + self.eps).sqrt()
