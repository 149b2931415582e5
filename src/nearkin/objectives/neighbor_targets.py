"""Neighbors as targets: learning without labels from what a teacher finds near a sample."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.references import MemoryBank
from nearkin.compose.validation import check_positive, check_share, check_whole
from nearkin.objectives.objective import Deployment
from nearkin.objectives.views import TwoViews


class NeighborTargets(TwoViews):
    """Every sample is drawn to itself at first, and later to what a teacher finds near it among all N samples in a memory bank.

        loss = -s log p_i0 - (1 - s) sum_(j != i) t_ij log p_ij
        t_ij = exp(y_i . v_j / sharp) / sum_(k != i) exp(y_i . v_k / sharp)
        p_ij = exp(x_i . u_j / temperature) / sum_(k = 0..N, k != i) exp(x_i . u_k / temperature),   u_0 = y_i, u_j = v_j
        s    = 1 - step / (until steps), and 0 from there on

    x_i is the student's embedding of a strongly augmented view, y_i the teacher's of a second view that is only cropped and flipped, and
    v_j the teacher's newest embedding of sample j. The teacher is a running mean of the student's weights, `nearkin.train.Teacher`;
    `nearkin train` makes one.

    Parameters
    ----------
    size : int
        Number of training samples N, at least 2. Ids are 0..N-1, and the bank has one slot for each.
    dimension : int
        The embedding's size d.
    steps : int
        Calls of `update` in the whole training; `nearkin train` fills them in.
    until : float, default=0.3
        Share of the steps after which a sample is drawn to its neighbors alone. 1 lets its own share fall to the end.
    temperature : float, default=0.1
        Divides the student's inner products of unit vectors.
    sharp : float, default=0.04
        Divides the teacher's: the lower, the more the nearest neighbors count.
    inertia : float, default=0.99
        Share of the teacher's weights that stays in every step of training.

    Notes
    -----
    Call it with both views in one batch, `objective(torch.cat([student, teacher]), ids=torch.cat([ids, ids]))`: of two rows with the same
    id the first is the student's, and no gradient flows into the second. Both rows of a sample have its value. A step takes O(n N) memory.

    Embeddings are scaled to unit length. The bank takes 4 N d bytes and is part of the `state_dict`.

    Differs: a bank of all samples instead of a queue of the newest; a share of the sample itself that falls, because random weights find
    no neighbors worth learning from.

    References
    ----------
    [zheng2021ressl]

    Examples
    --------
    >>> import torch
    >>> from nearkin import NeighborTargets
    >>> _ = torch.manual_seed(0)
    >>> objective = NeighborTargets(size=100, dimension=8, steps=1000)
    >>> embeddings, ids = torch.randn(4, 8), torch.tensor([3, 14, 15, 92])
    >>> both, twice = torch.cat([embeddings, embeddings]), torch.cat([ids, ids])
    >>> before = objective(both, ids=twice)
    >>> objective.update(both, ids=twice)
    >>> float(objective.own)  # the share of the sample itself
    0.9966...
    """

    keys = ("zheng2021ressl",)
    taken: Tensor

    def __init__(
        self,
        size: int,
        dimension: int,
        steps: int,
        until: float = 0.3,
        temperature: float = 0.1,
        sharp: float = 0.04,
        inertia: float = 0.99,
    ) -> None:
        super().__init__()
        check_whole("size", size, 2, "one sample has no neighbors")
        check_whole("steps", steps)
        check_share("until", until)
        check_positive("temperature", temperature)
        check_positive("sharp", sharp)
        check_share("inertia", inertia)
        self.steps, self.until, self.temperature, self.sharp, self.inertia = steps, until, temperature, sharp, inertia
        self.bank = MemoryBank(size, dimension, momentum=1.0)
        self.register_buffer("taken", torch.zeros(()))

    @property
    def own(self) -> Tensor:
        """The share of the sample itself after the steps that were taken."""
        return (1 - self.taken / max(self.until * self.steps, 1.0)).clamp_min(0)

    def moves(self) -> bool:
        return True

    def known_dimension(self) -> int:
        return self.bank.known_dimension()

    def deployment(self) -> Deployment:
        return Deployment("cosine")

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        student, teacher = self.paired(batch, references)
        bank = self.bank(teacher)
        x, y = (functional.normalize(one.embeddings, dim=1) for one in (student, teacher))
        y = y.detach()
        assert student.ids is not None and bank.ids is not None
        mine = student.ids[:, None] == bank.ids
        near = (y @ bank.embeddings.T / self.sharp).masked_fill(mine, -math.inf).softmax(1)
        itself = (x * y).sum(1, keepdim=True) / self.temperature
        others = (x @ bank.embeddings.T / self.temperature).masked_fill(mine, -math.inf)
        chosen = torch.cat([itself, others], 1).log_softmax(1)
        own = self.own.to(x.dtype)
        values = -own * chosen[:, 0] - (1 - own) * (near * chosen[:, 1:].masked_fill(mine, 0.0)).sum(1)
        assert batch.ids is not None
        rows = values.repeat_interleave(2)[batch.ids.argsort(stable=True).argsort()]  # both views of a sample have its value
        return Outcome(rows, torch.ones_like(rows), torch.full((), mine.numel(), device=rows.device))

    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """Put the teacher's embeddings into the bank, and count the step.

        Parameters
        ----------
        embeddings : Tensor of shape (n, d)
            Both views, as in the call.
        labels : optional
            Ignored.
        ids : Tensor, array or list of shape (n,)
            As in the call.
        """
        self.bank.update(self.paired(self._checked(embeddings, labels, ids), None)[1])
        self.taken += 1
