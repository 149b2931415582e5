"""Pseudo-labels: without classes, a network can learn to predict clusters of its own embeddings, or noise. Baselines of discovery.

Both keep the last embedding of every sample (`seen`, moved only by `update`) and use all of them between epochs, in `refresh`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from nearkin.compose.affinity import unit
from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points, numbered
from nearkin.compose.relation import Supervision
from nearkin.compose.validation import check_whole
from nearkin.objectives.objective import Objective

ROUNDS = 20  # iterations of k-means
JITTER = 1e-4  # how far from the largest cluster's center an empty cluster restarts


class DeepCluster(Objective):
    """DeepCluster: clusters of the embeddings are the classes of the next epoch, predicted by a new linear head.

        loss = -log softmax(W x_i + b)_(c_i),   c = k-means of the last embeddings, whitened by PCA and of unit length

    It needs no labels. Call `objective.refresh(seed)` before each epoch, `objective(embeddings, ids=ids)` in each step and
    `objective.update(embeddings, ids=ids)` after it.

    Parameters
    ----------
    size : int
        Number of training samples N. Ids are 0..N-1.
    dimension : int
        The embedding's size d.
    clusters : int, default=100
        Number of clusters, at least 2; more than N are lowered to N. Take several times the number of classes you expect.

    Notes
    -----
    Every cluster counts alike, however large it is. An empty cluster restarts next to the center of the largest one. Training
    stops if it finds a single cluster, because nothing leads out of that state.

    Differs: samples are weighted by one over the size of their cluster instead of being drawn evenly over clusters; the
    embeddings that are clustered are those of the last epoch's steps, not of a separate pass; the head is trained by the run's
    optimizer, whose momentum for it is reset with every new head, instead of by a separate one without momentum.

    References
    ----------
    [caron2018deep]

    Examples
    --------
    >>> import torch
    >>> from nearkin import DeepCluster
    >>> _ = torch.manual_seed(0)
    >>> objective = DeepCluster(size=6, dimension=2, clusters=2)
    >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [0.0, 1.0], [0.1, 1.0], [-0.1, 1.0]])
    >>> objective.update(embeddings, ids=torch.arange(6))
    >>> objective.refresh(seed=0)
    >>> objective.cluster.bincount()
    tensor([3, 3])
    >>> loss = objective(embeddings, ids=torch.arange(6))
    """

    keys = ("caron2018deep",)
    seen: Tensor
    refresh_every = 1
    cluster: Tensor
    weight: Tensor

    def __init__(self, size: int, dimension: int, clusters: int = 100) -> None:
        super().__init__()
        _check_sizes(size, dimension)
        check_whole("clusters", clusters, 2, "a single cluster has nothing to predict")
        clusters = min(clusters, size)
        self.head = nn.Linear(dimension, clusters)
        self.register_buffer("seen", torch.zeros(size, dimension))
        self.register_buffer("cluster", torch.arange(size) % clusters)
        self.register_buffer("weight", torch.ones(clusters))

    @property
    def supervision(self) -> Supervision:
        return "ids"

    def moves(self) -> bool:
        return True

    def known_dimension(self) -> int:
        return self.head.in_features

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        ids = _rows(batch, references, len(self.seen))
        pseudo = self.cluster[ids]
        weight, bias = self.head.weight.to(batch.embeddings.dtype), self.head.bias.to(batch.embeddings.dtype)
        values = functional.cross_entropy(batch.embeddings @ weight.T + bias, pseudo, reduction="none")  # (n,)
        return Outcome(values, self.weight[pseudo].to(values.dtype), torch.zeros((), dtype=torch.int64, device=values.device))

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: object = None, *, ids: object = None) -> None:
        """Store the embeddings of a step, for the next `refresh`.

        Parameters
        ----------
        embeddings : Tensor of shape (n, d)
            The embeddings of the step.
        labels : ignored
            There because every objective takes it.
        ids : Tensor, array or list of shape (n,)
            The samples' numbers, 0..N-1.
        """
        _remember(self.seen, self._checked(embeddings, None, ids))

    @torch.no_grad()
    def refresh(self, seed: int) -> str | None:
        """Cluster the stored embeddings and start a new head; call it before each epoch.

        Parameters
        ----------
        seed : int
            Decides the starting points of k-means and the new head.

        Returns
        -------
        str or None
            Why training must stop, if all samples are in one cluster; else None.
        """
        self.cluster.copy_(clustered(whitened(unit(self.seen)), self.head.out_features, seed))
        counts = torch.bincount(self.cluster, minlength=self.head.out_features).to(self.weight.dtype)
        self.weight.copy_(torch.where(counts > 0, len(self.cluster) / (counts.clamp_min(1) * len(counts)), 0.0))
        bound = self.head.in_features**-0.5
        generator = torch.Generator().manual_seed(seed)
        for part in (self.head.weight, self.head.bias):
            part.copy_((2 * torch.rand(part.shape, generator=generator) - 1) * bound)
        return "all training points lie in one cluster" if bool((self.cluster == self.cluster[0]).all()) else None


class NoiseAsTargets(Objective):
    """Noise as targets: every sample is pulled to a fixed random unit vector of its own, and samples may exchange their targets.

        loss = |x_i - t_(a(i))|^2 of unit embeddings,   a: the exchange with the least loss, by the Hungarian method in small groups

    It needs no labels. Call `objective.refresh(seed)` between epochs to exchange, `objective(embeddings, ids=ids)` in each step
    and `objective.update(embeddings, ids=ids)` after it.

    Parameters
    ----------
    size : int
        Number of training samples N. Ids are 0..N-1.
    dimension : int
        The embedding's size d.
    every : int, default=3
        After how many epochs `nearkin train` exchanges targets; your own loop calls `refresh` when it likes.

    Notes
    -----
    The targets spread the embeddings over the sphere, so they cannot collapse; the exchange gives similar samples nearby targets.

    Differs: targets are exchanged between epochs, in random groups of 256 and by the last embeddings, not within a step.

    References
    ----------
    [bojanowski2017noise]

    Examples
    --------
    >>> import torch
    >>> from nearkin import NoiseAsTargets
    >>> _ = torch.manual_seed(0)
    >>> objective = NoiseAsTargets(size=16, dimension=3)
    >>> embeddings, ids = torch.randn(16, 3), torch.arange(16)
    >>> before = objective(embeddings, ids=ids)
    >>> objective.update(embeddings, ids=ids)
    >>> objective.refresh(seed=0)
    >>> bool(objective(embeddings, ids=ids) < before)  # better targets, same embeddings
    True
    """

    keys = ("bojanowski2017noise",)
    group = 256
    seen: Tensor
    targets: Tensor
    owned: Tensor

    def __init__(self, size: int, dimension: int, every: int = 3) -> None:
        super().__init__()
        _check_sizes(size, dimension)
        check_whole("every", every, 1, "it is the number of epochs between two exchanges")
        self.refresh_every = every
        self.register_buffer("seen", torch.zeros(size, dimension))
        self.register_buffer("targets", unit(torch.randn(size, dimension)))
        self.register_buffer("owned", torch.arange(size))

    @property
    def supervision(self) -> Supervision:
        return "ids"

    def moves(self) -> bool:
        return True

    def known_dimension(self) -> int:
        return self.seen.shape[1]

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        ids = _rows(batch, references, len(self.seen))
        target = self.targets[self.owned[ids]].to(batch.embeddings.dtype)
        values = (unit(batch.embeddings) - target).square().sum(1)  # (n,)
        return Outcome(values, torch.ones_like(values), torch.zeros((), dtype=torch.int64, device=values.device))

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: object = None, *, ids: object = None) -> None:
        """Store the embeddings of a step, for the next `refresh`.

        Parameters
        ----------
        embeddings : Tensor of shape (n, d)
            The embeddings of the step.
        labels : ignored
            There because every objective takes it.
        ids : Tensor, array or list of shape (n,)
            The samples' numbers, 0..N-1.
        """
        _remember(self.seen, self._checked(embeddings, None, ids))

    @torch.no_grad()
    def refresh(self, seed: int) -> str | None:
        """Exchange targets within random groups of samples, so that the sum of squared distances falls.

        Parameters
        ----------
        seed : int
            Decides the groups.

        Returns
        -------
        None
            There is never a reason to stop.
        """
        from scipy.optimize import linear_sum_assignment

        x = unit(self.seen)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
        for ids in torch.split(order, self.group):
            current = self.owned[ids]
            near = (x[ids] @ self.targets[current].T).cpu().numpy()
            _, columns = linear_sum_assignment(near, maximize=True)
            self.owned[ids] = current[torch.from_numpy(columns).to(x.device)]
        return None


def whitened(x: Tensor) -> Tensor:
    """Return (n, d) centered, rotated to its principal axes, scaled to variance 1 along each (0 where there is none), with unit rows."""
    x = x.double() - x.double().mean(0)
    variance, axes = torch.linalg.eigh(x.T @ x / len(x))
    scale = torch.where(variance > 1e-12 * variance.max(), variance.clamp_min(1e-300).rsqrt(), 0.0)
    return unit((x @ axes) * scale).float()


def clustered(x: Tensor, clusters: int, seed: int) -> Tensor:
    """Return the k-means cluster (n,) of every row of x (n, d); an empty cluster restarts next to the center of the largest one."""
    generator = torch.Generator().manual_seed(seed)
    centers = x[torch.randperm(len(x), generator=generator)[:clusters].to(x.device)]
    for _ in range(ROUNDS):
        found: Tensor = (centers.square().sum(1) - 2 * x @ centers.T).argmin(1)  # |x|^2 is the same for all
        counts = torch.bincount(found, minlength=clusters)
        centers = torch.zeros_like(centers).index_add_(0, found, x) / counts.clamp_min(1)[:, None]
        restarted = centers[counts.argmax()] + JITTER * torch.randn(centers.shape, generator=generator).to(x.device)
        centers = torch.where(counts[:, None] > 0, centers, restarted)
    return found


def _check_sizes(size: int, dimension: int) -> None:
    check_whole("size", size, 1, "there is one slot for each training sample")
    check_whole("dimension", dimension, 1, "it is the embedding's size")


def _rows(batch: Points, references: Points | None, size: int) -> Tensor:
    """The ids of a batch, each of which has a row."""
    if references is not None:
        raise ValueError("DeepCluster and NoiseAsTargets use no neighbors and take no references=; leave it out")
    return numbered(batch, size, "pseudo-labels are kept for every sample and looked up by its id", "there are slots for")


def _remember(seen: Tensor, batch: Points) -> None:
    seen[_rows(batch, None, len(seen))] = batch.embeddings.to(seen.dtype)
