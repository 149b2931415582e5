"""Matryoshka: any objective on several prefixes of the embedding.

It evaluates other objectives and has no parts of its own, so it is a sum of objectives.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nearkin.compose.outcome import Reduction
from nearkin.compose.points import Points
from nearkin.compose.references import References
from nearkin.compose.validation import check_whole
from nearkin.objectives import inputs
from nearkin.objectives.objective import Deployment, Objective
from nearkin.objectives.weighted_sum import WeightedSum


class Matryoshka(WeightedSum):
    """Any objective on several prefixes of the embedding, so that the first coordinates alone are a smaller embedding.

        loss = sum_m weight_m objective_m(z[:, :m], labels)

    Train once, and store or search with as many coordinates as you can afford.

    Parameters
    ----------
    objective : Objective, WeightedSum or callable
        The objective of every prefix. One that holds vectors of its own (proxies, banks, centers) needs another size for each: pass a
        function of the dimension, such as `lambda m: ArcFace(100, m)`.
    dimensions : sequence of int
        The lengths of the prefixes, such as (32, 64, 128). Include the whole embedding's.
    weights : sequence of float, optional
        A weight for each prefix; default 1.

    Notes
    -----
    A sum of objectives. Objectives that normalize do so for each prefix. Search a prefix with the metric of the objective. A memory that is
    given to `choosing_among` is that of the whole embedding; every prefix keeps its own columns of it.

    Differs: the weights are 1 and not learned, as in the paper's experiments.

    References
    ----------
    [kusupati2022matryoshka] eq. (1)

    Examples
    --------
    >>> import torch
    >>> from nearkin import NCA, ArcFace, Matryoshka
    >>> _ = torch.manual_seed(0)
    >>> z, y = torch.randn(8, 4), torch.arange(4).repeat(2)
    >>> objective = Matryoshka(NCA(), (2, 4))
    >>> bool(objective(z, y) == NCA()(z[:, :2], y) + NCA()(z, y))
    True
    >>> heads = Matryoshka(lambda m: ArcFace(4, m), (2, 4))
    >>> [tuple(p.shape) for p in heads.parameters()]
    [(4, 2), (4, 4)]
    """

    keys: tuple[str, ...] = ("kusupati2022matryoshka",)

    def __init__(
        self,
        objective: Objective | WeightedSum | Callable[[int], Objective | WeightedSum],
        dimensions: Sequence[int],
        weights: Sequence[float] | None = None,
    ) -> None:
        sizes = [check_whole("dimensions", size) for size in dimensions]
        if not sizes or len(set(sizes)) != len(sizes):
            raise ValueError(f"dimensions ({tuple(sizes)}) must be different lengths, at least one, such as (32, 64, 128)")
        scale = [1.0] * len(sizes) if weights is None else [float(weight) for weight in weights]
        if len(scale) != len(sizes):
            raise ValueError(f"weights has {len(scale)} entries for {len(sizes)} dimensions; pass one for each")
        super().__init__({str(m): (weight, _for_prefix(objective, m)) for m, weight in zip(sizes, scale, strict=True)})
        self.keys = (*type(self).keys, *self.keys)
        self.dimensions = tuple(sizes)

    def deployment(self) -> Deployment:
        return self.named_objectives()[str(max(self.dimensions))].deployment()

    def _for_term(self, name: str, references: References) -> References:
        return references.narrowed(int(name))

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
        inputs.refuse_unknown(misplaced, unknown)
        self._check_width(embeddings)
        known = None if references is None else inputs.as_points(references)
        if known is not None:
            self._check_width(known.embeddings, "references.embeddings")
        values = []
        for m in self.dimensions:
            others = None if known is None else known._replace(embeddings=known.embeddings[:, :m])
            term = self.terms[str(m)](embeddings[:, :m], labels, ids=ids, references=others, reduction=reduction)
            values.append(self.weights[str(m)] * term)
        return torch.stack(values).sum(0)

    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """Move the state of every prefix's objective; call it after each optimizer step.

        Parameters
        ----------
        embeddings, labels, ids
            As for every `Objective`.
        """
        for m, term in zip(self.dimensions, self.named_objectives().values(), strict=True):
            term.update(embeddings[:, :m], labels, ids=ids)

    def _check_width(self, embeddings: Tensor, name: str = "embeddings") -> None:
        inputs.check_shape(embeddings, name)
        if embeddings.shape[1] < max(self.dimensions):
            raise ValueError(
                f"dimensions ({self.dimensions}) go beyond the {embeddings.shape[1]} columns of {name}; "
                "leave out the larger ones, or widen the network's output"
            )


def _for_prefix(objective: Any, dimension: int) -> Objective | WeightedSum:
    if not isinstance(objective, Objective | WeightedSum):
        made: Objective | WeightedSum = objective(dimension)
        return made
    if objective.state_dict():
        raise ValueError(
            f"objective {type(objective).__name__} holds vectors or state for one dimension; "
            "pass a function of the dimension that builds it, such as lambda m: ArcFace(100, m)"
        )
    return copy.deepcopy(objective)
