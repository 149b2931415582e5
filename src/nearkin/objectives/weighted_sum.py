"""A weighted sum of objectives, and the center loss, which is one."""

import copy
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from nearkin.compose.affinity import SquaredEuclidean
from nearkin.compose.criterion import attraction
from nearkin.compose.outcome import Outcome, Reduction
from nearkin.compose.points import Points
from nearkin.compose.references import Centers, References
from nearkin.compose.relation import SameLabel
from nearkin.objectives import inputs
from nearkin.objectives.class_vectors import Softmax
from nearkin.objectives.neighborhood import NeighborhoodObjective
from nearkin.objectives.objective import Deployment, Objective


class WeightedSum(nn.Module):
    """The weighted sum of several objectives, called, updated and saved as one.

        loss = sum_t weight_t objective_t(embeddings, labels)

    Parameters
    ----------
    terms : mapping of str to (float, Objective or WeightedSum)
        Name, weight and objective of every term. Sums can be nested. All terms get the same labels, ids and references.

    Attributes
    ----------
    terms : torch.nn.ModuleDict
        The objectives by name.
    weights : dict of str to float
        The weights by name; change them during training if you like.
    keys : tuple of str
        The papers of all terms.

    Examples
    --------
    >>> import torch
    >>> from nearkin import Angular, NPair, WeightedSum
    >>> both = WeightedSum({"npair": (1.0, NPair()), "angular": (2.0, Angular())})
    >>> loss = both(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> both.last["npair"]
    Last(queries=4, valid=2, skipped=2, active=2, clamped=0)
    """

    keys: tuple[str, ...] = ()  # the papers of all its terms
    supervision = None  # its terms' own
    discovers = False
    inertia: float | None = None

    def __init__(self, terms: "Mapping[str, tuple[float, Objective | WeightedSum]]") -> None:
        super().__init__()
        if not terms:
            raise ValueError("terms is empty; pass at least one, {name: (weight, objective)}")
        self.weights = {name: float(weight) for name, (weight, _) in terms.items()}
        self.terms = nn.ModuleDict({name: objective for name, (_, objective) in terms.items()})
        for name, term in self.terms.items():
            if not isinstance(term, Objective | WeightedSum):
                raise TypeError(f"term {name!r} is a {type(term).__name__}; a term must be (weight, objective)")
        self.keys = tuple(dict.fromkeys(key for term in self.named_objectives().values() for key in term.keys))

    @property
    def last(self) -> dict[str, Any]:
        """Counts of the last call for every term by name; a nested sum has a dictionary of its own."""
        return {name: term.last for name, term in self.named_objectives().items()}

    def named_objectives(self) -> dict[str, "Objective | WeightedSum"]:
        """Return the terms by name, without their weights."""
        return {name: term for name, term in self.terms.items() if isinstance(term, Objective | WeightedSum)}

    def deployment(self) -> Deployment:
        """Return the metric to search with after training: squared Euclidean, because its terms need not agree on another.

        Returns
        -------
        Deployment
            The metric; no temperature.
        """
        return Deployment()

    def recordable(self, queries: int) -> bool:
        """Return whether a training step can be recorded in a CUDA graph: every term must allow it.

        Parameters
        ----------
        queries : int
            Number of rows of the batch.

        Returns
        -------
        bool
            True if it can.
        """
        return all(term.recordable(queries) for term in self.named_objectives().values())

    def choosing_among(self, references: References) -> Self:
        """Return a copy of this sum whose terms choose among other references, such as a memory; every term has its own copy of it.

        Parameters
        ----------
        references : References
            Such as `CrossBatchMemory(4096, d, delay=1000)`.

        Returns
        -------
        WeightedSum
            The copy. Call its `update` with ids after every optimizer step, which fills the memories.

        Raises
        ------
        ValueError
            If a term cannot, because it has class vectors of its own, say: give the memory to the other terms before you add them up.

        Examples
        --------
        >>> from nearkin import Circle, SupCon, WeightedSum
        >>> from nearkin.compose import CrossBatchMemory
        >>> both = WeightedSum({"a": (1.0, SupCon()), "b": (0.5, Circle())}).choosing_among(CrossBatchMemory(64, 4))
        >>> both.terms["b"].references
        CrossBatchMemory(size=64, dimension=4)
        """
        other = copy.deepcopy(self)
        for name, term in self.named_objectives().items():
            try:
                other.terms[name] = term.choosing_among(self._for_term(name, references))
            except ValueError as error:
                fix = "give the memory to the others before you add them up, by their own choosing_among"
                raise ValueError(f"term {name!r}: {error}; {fix}") from None
        return other

    def _for_term(self, name: str, references: References) -> References:
        return copy.deepcopy(references)

    def forward(
        self,
        embeddings: Tensor,
        labels: Any = None,
        *misplaced: Any,
        ids: Any = None,
        references: Points | None = None,
        reduction: Reduction = "mean",
        **unknown: Any,
    ) -> Tensor:
        """Compute the weighted sum; each term reduces by its own rule before it is weighted.

        Parameters
        ----------
        embeddings, labels, ids, references, reduction
            As for every `Objective`; all terms get the same ones.
        *misplaced, **unknown
            None are taken.

        Returns
        -------
        Tensor
            A scalar, or (n,) with reduction="none".
        """
        inputs.refuse_unknown(misplaced, unknown)
        values = [
            self.weights[name] * term(embeddings, labels, ids=ids, references=references, reduction=reduction)
            for name, term in self.terms.items()
        ]
        return torch.stack(values).sum(0)

    @property
    def refresh_every(self) -> int:
        """Epochs between two calls of `refresh`: the fewest that a term asks for; 0 if none does."""
        return min((every for term in self.named_objectives().values() if (every := term.refresh_every)), default=0)

    def refresh(self, seed: int) -> str | None:
        """Let every term look at all samples again, between epochs; see `Objective.refresh`.

        Parameters
        ----------
        seed : int
            Decides what is drawn at random.

        Returns
        -------
        str or None
            Why training must stop, in the words of the first term that says so, or None to continue.
        """
        stops = [term.refresh(seed) for term in self.named_objectives().values()]
        return next((why for why in stops if why), None)

    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """Move the state of every term; call it after each optimizer step.

        Parameters
        ----------
        embeddings, labels, ids
            As for every `Objective`; all terms get the same ones.
        """
        for term in self.named_objectives().values():
            term.update(embeddings, labels, ids=ids)


class CenterPull(NeighborhoodObjective):
    """Pull every embedding to the moving center of its class.

        loss = mean_i |x_i - c_(y_i)|^2 / 2,   c_j -= rate sum_(y_i = j) (c_j - x_i) / (1 + n_j)

    Alone it collapses: all embeddings at one point cost nothing. Add it to another objective with `WeightedSum`, or use
    `CenterLoss`.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    rate : float, default=0.5
        How far `update` moves a center toward the mean of its class in the batch. Lower it for small batches.

    Notes
    -----
    The centers start at zero. They are state, not parameters, and move only in `update`, with the class's n_j samples of the
    batch.

    Differs: the mean over the batch, not the sum; the centers move in `update`, after the optimizer's step.

    References
    ----------
    [wen2016discriminative] eq. (2)-(4)

    Examples
    --------
    >>> import torch
    >>> from nearkin import CenterPull
    >>> objective = CenterPull(num_classes=2, dimension=1)
    >>> embeddings, labels = torch.tensor([[2.0], [4.0]]), torch.tensor([0, 1])
    >>> objective(embeddings, labels)  # (2^2 / 2 + 4^2 / 2) / 2
    tensor(5.)
    >>> objective.update(embeddings, labels)
    >>> objective.references.vectors  # a quarter of the way: rate 1/2, one sample of each class
    tensor([[0.5000],
            [1.0000]])
    """

    keys = ("wen2016discriminative",)

    def __init__(self, num_classes: int, dimension: int, rate: float = 0.5) -> None:
        # temperature 2 makes the affinity -|x - c|^2 / 2
        super().__init__(Centers(num_classes, dimension, rate), SquaredEuclidean(2.0), SameLabel(), attraction)

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        if references is not None:
            return super().outcome(batch, references)
        assert batch.labels is not None
        centers = self.references(batch).embeddings
        known = (batch.labels >= 0) & (batch.labels < len(centers))
        own = centers[torch.where(known, batch.labels, 0)]  # (n, d): only the own center is read
        values = torch.where(known, (batch.embeddings - own).square().sum(1) / 2, 0)
        return Outcome(values, known.to(values.dtype), known.sum())


class CenterLoss(WeightedSum):
    """Center loss: a softmax classifier plus a pull to the center of the class.

        -log softmax(W x + b)_y + (weight / 2) mean |x_i - c_(y_i)|^2,   c_j -= rate sum_(y_i = j) (c_j - x_i) / (1 + n_j)

    A classifier with compact classes, so that distances within the embedding mean something.

    Parameters
    ----------
    num_classes : int
        Number of classes C; labels are 0..C-1.
    dimension : int
        The embedding's size d.
    weight : float, default=0.003
        Weight of the pull. A larger one gives more compact classes; too large a one collapses them.
    rate : float, default=0.5
        How far `update` moves a center toward the mean of its class in the batch.

    Notes
    -----
    It is a `WeightedSum` of `Softmax` and `CenterPull`, named "softmax" and "center". Give `objective.parameters()` to the
    optimizer, and call `update` after its step.

    Differs: as CenterPull.

    References
    ----------
    [bridle1990softmax]
    [wen2016discriminative] eq. (5)

    Examples
    --------
    >>> import torch
    >>> from nearkin import CenterLoss
    >>> _ = torch.manual_seed(0)
    >>> objective = CenterLoss(num_classes=3, dimension=2)
    >>> embeddings, labels = torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    >>> loss = objective(embeddings, labels)
    >>> objective.update(embeddings, labels)
    >>> sorted(objective.last)
    ['center', 'softmax']
    """

    keys = ("bridle1990softmax", "wen2016discriminative")

    def __init__(self, num_classes: int, dimension: int, weight: float = 0.003, rate: float = 0.5) -> None:
        super().__init__(
            {
                "softmax": (1.0, Softmax(num_classes, dimension)),
                "center": (weight, CenterPull(num_classes, dimension, rate)),
            }
        )
