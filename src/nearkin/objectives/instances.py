"""Instances: learning without labels. Every image is its own class, and its neighbors, once trusted, join it."""

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
    """Every sample must find its own earlier self among all N samples of a memory bank.

        loss = -log( exp(x_i . v_i / temperature) / sum_(k = 1..N) exp(x_i . v_k / temperature) )

    Call it as objective(embeddings, ids=ids), and objective.update(embeddings, ids=ids) after the optimizer's step.
    [wu2018instance]; [huang2019and] eq. (2), (8)
    Differs: the mean, not the sum; the full softmax over N, no noise-contrastive sampling; embeddings are made unit length
    here; the bank is renormalized after its update; temperature 0.1 as in the released code (the text gives none).
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
    """Instance discrimination in which trusted samples count their discovered neighbors as themselves.

        loss = -log sum_(j in N(i)) p_ij,   p_ij = exp(x_i . v_j / temperature) / sum_(k = 1..N) exp(x_i . v_k / temperature)
        N(i) = {i} and, where i is trusted, the ids of its row of the table
        with quantifier "each":
        loss = mean_(j in N(i)) log( 1 + sum_(k not in N(i)) exp((x_i . v_k - x_i . v_j) / temperature) )

    Tell it what was discovered with objective.trust(table, trusted): a table (N, k) of ids and a truth value for each row, as
    `discover` and `trusted` of nearkin.train.discovery find them in objective.references.vectors. Until then it is instance discrimination.
    A trusted neighborhood is what the paper calls an anchor neighborhood.
    Beyond the paper: with `weighted`, objective.trust(table, None, weight) takes a number between 0 and 1 for each sample, and a neighbor
    j of i counts as weight_i p_ij instead of in full or not at all. With `labels` (N,), -1 where none is known, a sample that has a class
    takes all of that class for neighbors, and only the others take what was discovered. The paper's loss is content when any of N(i) is
    near, and i itself mostly is; the `quantifier` "each" asks it of every one of them. That one knows no weights, and beside labels it
    holds the affinities of the batch and the whole bank, however large that is.
    [huang2019and] eq. (1)-(8)
    Differs: as InstanceDiscrimination; eq. (1) finds the nearest OTHER samples, eq. (10) is used as corrected.
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
            raise ValueError("weighted lets a neighbor count in part, and quantifier 'each' knows only right and wrong; choose one of them")
        bank = MemoryBank(size, dimension, momentum, start)  # first: it knows what a size is
        if k >= size:
            has = f"a sample has at most {size - 1} neighbors"
            mend = "train on more samples" if size < 2 else "lower k, or train on more samples"
            raise ValueError(f"k ({k}) must be below the number of samples ({size}): {has}; {mend}")
        super().__init__(
            references=bank,
            affinity=Normalized(InnerProduct(temperature), references=False),
            relation=ListedNeighbors(size, k, weighted=weighted, labels=labels),
            criterion=QUANTIFIERS[quantifier],
            engine=engine,
            precision=precision,
        )

    def trust(self, table: Tensor, trusted: Tensor | None = None, weight: Tensor | None = None) -> None:
        """Set the discovered neighborhoods, which of them to trust (all, unless told), and with `weighted` how much each counts."""
        cast(ListedNeighbors, self.relation).update(table, trusted, weight)
