"""Instances: learning without labels. Every sample is a class of its own, and trusted neighbors join it."""

from typing import ClassVar, Literal, cast

from torch import Tensor

from nearkin.compose.affinity import InnerProduct, Normalized
from nearkin.compose.criterion import any_positive, each_positive
from nearkin.compose.references import MemoryBank
from nearkin.compose.relation import ListedNeighbors, SameId
from nearkin.compose.validation import check_choice, check_positive, check_whole
from nearkin.objectives.neighborhood import Engine, NeighborhoodObjective, Precision

QUANTIFIERS = {"any": any_positive, "each": each_positive}


class InstanceDiscrimination(NeighborhoodObjective):
    """Instance discrimination: every sample must find its own earlier embedding among those of all N samples in a memory bank.

        loss = -log( exp(x_i . v_i / temperature) / sum_(k = 1..N) exp(x_i . v_k / temperature) )

    It needs no labels. With augmented views, a sample must be recognized under every view, so similar samples end up near each
    other. Call it as `objective(embeddings, ids=ids)` and `objective.update(embeddings, ids=ids)` after the optimizer's step.

    Parameters
    ----------
    size : int
        Number of training samples N. Ids are 0..N-1, and the bank has one slot for each.
    dimension : int
        The embedding's size d.
    temperature : float, default=0.1
        Divides the inner products of unit vectors. 0.05 to 0.2 is usual.
    momentum : float, default=0.5
        Share of the new embedding when `update` moves a slot of the bank: v <- unit((1 - momentum) v + momentum x). 1 keeps
        the newest embedding only.
    start : {"normalized", "released"}, default="normalized"
        How the bank starts: random unit vectors, or as in the released code of Huang et al., with length 1 only on average.
    engine : {"auto", "dense", "torch", "numba", "triton"}, default="auto"
        How the pairs are computed. "auto" builds the whole matrix of queries by bank for small sizes and streams through it
        for large ones, in O((n + m) d) memory. "dense" always builds the matrix. The other three force one streaming engine;
        they are for tests and measurements.
    precision : {"highest", "high", "fast"}, default="highest"
        Arithmetic of the streaming engine on CUDA: "highest" is as exact as float32, "high" is TF32, "fast" is float16.
        Other devices ignore it.

    Notes
    -----
    Embeddings are scaled to unit length. The bank takes 4 N d bytes and is part of the `state_dict`.

    Differs: the mean, not the sum; the full softmax over N, without noise-contrastive sampling; embeddings are scaled to unit
    length here; the bank is normalized again after its update; the temperature is 0.1 as in the released code, because the text
    gives none.

    References
    ----------
    [wu2018instance]
    [huang2019and] eq. (2), (8)

    Examples
    --------
    >>> import torch
    >>> from nearkin import InstanceDiscrimination
    >>> _ = torch.manual_seed(0)
    >>> objective = InstanceDiscrimination(size=100, dimension=8)
    >>> embeddings, ids = torch.randn(4, 8), torch.tensor([3, 14, 15, 92])
    >>> before = objective(embeddings, ids=ids)
    >>> objective.update(embeddings, ids=ids)
    >>> bool(objective(embeddings, ids=ids) < before)  # each is nearer to its own slot now
    True
    """

    keys = ("wu2018instance", "huang2019and")

    def __init__(
        self,
        size: int,
        dimension: int,
        temperature: float = 0.1,
        momentum: float = 0.5,
        start: Literal["normalized", "released"] = "normalized",
        *,
        engine: Engine = "auto",
        precision: Precision = "highest",
    ) -> None:
        check_positive("temperature", temperature)
        super().__init__(
            references=MemoryBank(size, dimension, momentum, start),
            affinity=Normalized(InnerProduct(temperature), references=False),
            relation=SameId(),
            criterion=any_positive,
            engine=engine,
            precision=precision,
        )


class NeighborhoodDiscovery(NeighborhoodObjective):
    """Instance discrimination in which the discovered neighbors of trusted samples count as positives, too.

        loss = -log sum_(j in N(i)) p_ij,   p_ij = exp(x_i . v_j / temperature) / sum_(k = 1..N) exp(x_i . v_k / temperature)
        N(i) = {i} and, where i is trusted, the ids of its row of the table
        with quantifier "each":
        loss = mean_(j in N(i)) log( 1 + sum_(k not in N(i)) exp((x_i . v_k - x_i . v_j) / temperature) )

    Learning without labels, in rounds: train, look up every sample's nearest neighbors in the bank, and trust more of them in
    every round. Set what was found with `objective.trust(table, trusted)`; until then it is `InstanceDiscrimination`.
    `nearkin train` runs the rounds for you; `nearkin.train.discovery` has the functions `discover` and `trusted`.

    Parameters
    ----------
    size : int
        Number of training samples N. Ids are 0..N-1, and the bank has one slot for each.
    dimension : int
        The embedding's size d.
    k : int, default=1
        Number of discovered neighbors of each sample, the columns of the table; below N.
    temperature : float, default=0.1
        Divides the inner products of unit vectors. 0.05 to 0.2 is usual.
    momentum : float, default=0.5
        Share of the new embedding when `update` moves a slot of the bank: v <- unit((1 - momentum) v + momentum x). 1 keeps
        the newest embedding only.
    start : {"normalized", "released"}, default="normalized"
        How the bank starts: random unit vectors, or as in the released code of Huang et al., with length 1 only on average.
    weighted : bool, default=False
        Let a neighbor count in part: `trust` then takes a weight in [0, 1] for each sample, and a neighbor j of i counts as
        weight_i p_ij. Not with quantifier "each".
    labels : Tensor of shape (N,), optional
        Classes of the samples that have one, -1 for the others. A sample with a class takes all samples of its class as
        positives; only the others use the discovered neighbors.
    quantifier : {"any", "each"}, default="any"
        "any", the paper's loss, is low as soon as one of N(i) is near, and i itself mostly is. "each" asks it of every one.
        With `labels`, "each" builds the whole matrix of batch by bank.
    engine : {"auto", "dense", "torch", "numba", "triton"}, default="auto"
        How the pairs are computed. "auto" builds the whole matrix of queries by bank for small sizes and streams through it
        for large ones, in O((n + m) d) memory. "dense" always builds the matrix. The other three force one streaming engine;
        they are for tests and measurements.
    precision : {"highest", "high", "fast"}, default="highest"
        Arithmetic of the streaming engine on CUDA: "highest" is as exact as float32, "high" is TF32, "fast" is float16.
        Other devices ignore it.

    Notes
    -----
    A trusted neighborhood is what the paper calls an anchor neighborhood. `weighted`, `labels` and `quantifier` are not in the
    paper.

    Differs: as InstanceDiscrimination; eq. (1) finds the nearest OTHER samples, eq. (10) is used as corrected.

    References
    ----------
    [huang2019and] eq. (1)-(8)

    Examples
    --------
    >>> import torch
    >>> from nearkin import NeighborhoodDiscovery
    >>> _ = torch.manual_seed(0)
    >>> objective = NeighborhoodDiscovery(size=4, dimension=8)
    >>> embeddings, ids = torch.randn(4, 8), torch.arange(4)
    >>> alone = objective(embeddings, ids=ids)
    >>> table = torch.tensor([[1], [0], [3], [2]])  # the neighbor of each sample
    >>> objective.trust(table, torch.tensor([True, True, False, False]))
    >>> bool(objective(embeddings, ids=ids) < alone)  # more positives
    True
    """

    keys = ("huang2019and",)
    discovers: ClassVar[bool] = True

    def __init__(
        self,
        size: int,
        dimension: int,
        k: int = 1,
        temperature: float = 0.1,
        momentum: float = 0.5,
        start: Literal["normalized", "released"] = "normalized",
        *,
        weighted: bool = False,
        labels: Tensor | None = None,
        quantifier: Literal["any", "each"] = "any",
        engine: Engine = "auto",
        precision: Precision = "highest",
    ) -> None:
        check_positive("temperature", temperature)
        check_whole("k", k)
        check_choice("quantifier", quantifier, tuple(QUANTIFIERS))
        if weighted and quantifier == "each":
            raise ValueError(
                "weighted=True lets a neighbor count in part, but quantifier='each' has only positives and negatives; drop one of the two"
            )
        bank = MemoryBank(size, dimension, momentum, start)  # first: it checks the size
        if k >= size:
            fix = "train on more samples" if size < 2 else "lower k, or train on more samples"
            raise ValueError(f"k ({k}) must be below the number of samples ({size}): a sample has at most {size - 1} neighbors; {fix}")
        super().__init__(
            references=bank,
            affinity=Normalized(InnerProduct(temperature), references=False),
            relation=ListedNeighbors(size, k, weighted=weighted, labels=labels),
            criterion=QUANTIFIERS[quantifier],
            engine=engine,
            precision=precision,
        )

    def trust(self, table: Tensor, trusted: Tensor | None = None, weight: Tensor | None = None) -> None:
        """Set the discovered neighborhoods, which of them to trust, and with `weighted` how much each counts.

        Parameters
        ----------
        table : Tensor of shape (N, k)
            The ids of every sample's neighbors, row i for id i.
        trusted : Tensor of bool of shape (N,), optional
            Which rows to use; default all.
        weight : Tensor of shape (N,), optional
            How much the neighbors of a row count, between 0 and 1; default 1. Only with weighted=True.

        Raises
        ------
        TypeError, ValueError
            If a shape, a type or an id does not fit, or weights are passed to an objective that was built without `weighted`.
        """
        cast(ListedNeighbors, self.relation).update(table, trusted, weight)
