"""Pseudo-labels: without classes, a network can be told to follow clusters of its own embeddings, or noise. Baselines of discovery.

Both remember every sample's last embedding (`seen`, moved only by `update`) and look at all of them between epochs, in `refresh`.
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

ROUNDS = 20  # of k-means
LITTLE = 1e-4  # how far from a full cluster's center an empty one begins anew


class DeepCluster(Objective):
    """Clusters of the embeddings are the classes of the next epoch, told by a head that begins anew with them.

        loss = -log softmax(W x_i + b)_(c_i),   c = k-means of the last embeddings, whitened by PCA and of unit length

    Every cluster counts alike, however large. An empty one begins anew beside the center of the largest; more clusters than samples are
    lowered to these. Call `refresh` with a seed before each epoch; training stops where it finds a single cluster, which nothing leads out
    of. [caron2018deep]
    Differs: samples are weighed by one over the size of their cluster instead of being drawn evenly over clusters; the embeddings
    that are clustered are those of the last epoch's steps, not of a pass of their own; the head is trained by the run's optimizer, which
    forgets what it knew of the last head, instead of by a new one without momentum.
    """

    keys = ("caron2018deep",)
    seen: Tensor
    refresh_every = 1
    cluster: Tensor
    weight: Tensor

    def __init__(self, size: int, dimension: int, clusters: int = 100) -> None:
        super().__init__()
        _check_sizes(size, dimension)
        check_whole("clusters", clusters, 2, "with one of them nothing could be wrong")
        clusters = min(clusters, size)
        self.head = nn.Linear(dimension, clusters)
        self.register_buffer("seen", torch.zeros(size, dimension))
        self.register_buffer("cluster", torch.arange(size) % clusters)
        self.register_buffer("weight", torch.ones(clusters))

    @property
    def supervision(self) -> Supervision:
        return "ids"

    def known_dimension(self) -> int:
        return self.head.in_features

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        ids = _rows(batch, references, len(self.seen))
        told = self.cluster[ids]
        weight, bias = self.head.weight.to(batch.embeddings.dtype), self.head.bias.to(batch.embeddings.dtype)
        values = functional.cross_entropy(batch.embeddings @ weight.T + bias, told, reduction="none")  # (n,)
        return Outcome(values, self.weight[told].to(values.dtype), torch.zeros((), dtype=torch.int64, device=values.device))

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: object = None, *, ids: object = None) -> None:
        """Remember the embeddings."""
        _remember(self.seen, self._checked(embeddings, None, ids))

    @torch.no_grad()
    def refresh(self, seed: int) -> str | None:
        """Cluster what was seen, and forget the head. A single cluster ends the training: nothing leads out of it."""
        self.cluster.copy_(clustered(whitened(unit(self.seen)), self.head.out_features, seed))
        counts = torch.bincount(self.cluster, minlength=self.head.out_features).to(self.weight.dtype)
        self.weight.copy_(torch.where(counts > 0, len(self.cluster) / (counts.clamp_min(1) * len(counts)), 0.0))
        bound = self.head.in_features**-0.5
        generator = torch.Generator().manual_seed(seed)
        for part in (self.head.weight, self.head.bias):
            part.copy_((2 * torch.rand(part.shape, generator=generator) - 1) * bound)
        return "all training points lie in one cluster" if bool((self.cluster == self.cluster[0]).all()) else None


class NoiseAsTargets(Objective):
    """Every sample is drawn to a fixed random unit vector of its own, and samples may exchange theirs.

        loss = |x_i - t_(a(i))|^2 of unit embeddings,   a: the exchange that makes it least, by the Hungarian method in small groups

    Call `refresh` with a seed before an epoch to exchange; `every` says after how many epochs training does. [bojanowski2017noise]
    Differs: targets are exchanged between epochs, in random groups of 256 and by the last embeddings, not within a step.
    """

    keys = ("bojanowski2017noise",)
    group = 256
    seen: Tensor
    targets: Tensor
    owned: Tensor

    def __init__(self, size: int, dimension: int, every: int = 3) -> None:
        super().__init__()
        _check_sizes(size, dimension)
        check_whole("every", every, 1, "it counts epochs between two exchanges")
        self.refresh_every = every
        self.register_buffer("seen", torch.zeros(size, dimension))
        self.register_buffer("targets", unit(torch.randn(size, dimension)))
        self.register_buffer("owned", torch.arange(size))

    @property
    def supervision(self) -> Supervision:
        return "ids"

    def known_dimension(self) -> int:
        return self.seen.shape[1]

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        ids = _rows(batch, references, len(self.seen))
        wanted = self.targets[self.owned[ids]].to(batch.embeddings.dtype)
        values = (unit(batch.embeddings) - wanted).square().sum(1)  # (n,)
        return Outcome(values, torch.ones_like(values), torch.zeros((), dtype=torch.int64, device=values.device))

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: object = None, *, ids: object = None) -> None:
        """Remember the embeddings."""
        _remember(self.seen, self._checked(embeddings, None, ids))

    @torch.no_grad()
    def refresh(self, seed: int) -> str | None:
        """Let samples exchange targets within random groups, so that the sum of squared distances falls."""
        from scipy.optimize import linear_sum_assignment

        x = unit(self.seen)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
        for ids in torch.split(order, self.group):
            theirs = self.owned[ids]
            near = (x[ids] @ self.targets[theirs].T).cpu().numpy()
            _, columns = linear_sum_assignment(near, maximize=True)
            self.owned[ids] = theirs[torch.from_numpy(columns).to(x.device)]
        return None


def whitened(x: Tensor) -> Tensor:
    """(n, d) centerd, turned to its principal axes and scaled to variance 1 along each; axes without variance stay 0. Unit rows."""
    x = x.double() - x.double().mean(0)
    variance, axes = torch.linalg.eigh(x.T @ x / len(x))
    scale = torch.where(variance > 1e-12 * variance.max(), variance.clamp_min(1e-300).rsqrt(), 0.0)
    return unit((x @ axes) * scale).float()


def clustered(x: Tensor, clusters: int, seed: int) -> Tensor:
    """(n,) k-means clusters of x (n, d): some rounds from random points; an empty cluster begins anew beside the largest one's center."""
    generator = torch.Generator().manual_seed(seed)
    centers = x[torch.randperm(len(x), generator=generator)[:clusters].to(x.device)]
    for _ in range(ROUNDS):
        found: Tensor = (centers.square().sum(1) - 2 * x @ centers.T).argmin(1)  # |x|^2 is the same for all
        counts = torch.bincount(found, minlength=clusters)
        centers = torch.zeros_like(centers).index_add_(0, found, x) / counts.clamp_min(1)[:, None]
        beside = centers[counts.argmax()] + LITTLE * torch.randn(centers.shape, generator=generator).to(x.device)
        centers = torch.where(counts[:, None] > 0, centers, beside)
    return found


def _check_sizes(size: int, dimension: int) -> None:
    check_whole("size", size, 1, "there is one slot for each training sample")
    check_whole("dimension", dimension, 1, "it is the embedding's size")


def _rows(batch: Points, references: Points | None, size: int) -> Tensor:
    """The ids of a batch, each of which has a row."""
    if references is not None:
        raise ValueError("pseudo-labels ask no neighbors and take no references=")
    return numbered(batch, size, "pseudo-labels are kept for every sample and looked up by its id", "there are slots for")


def _remember(seen: Tensor, batch: Points) -> None:
    assert batch.ids is not None
    seen[batch.ids] = batch.embeddings.to(seen.dtype)
