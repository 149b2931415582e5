"""Contrastive softmax: every query chooses its positives among all points by a softmax of cosines."""

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from nearkin.compose.affinity import InnerProduct, cosine, unit
from nearkin.compose.criterion import any_positive, mean_positive
from nearkin.compose.outcome import Outcome
from nearkin.compose.pair_weights import each_pair
from nearkin.compose.points import Points
from nearkin.compose.references import InBatch, References
from nearkin.compose.relation import Related, SameId, SameLabel, Supervision
from nearkin.compose.validation import check_choice, check_positive
from nearkin.objectives.neighborhood import Engine, NeighborhoodObjective, Precision
from nearkin.objectives.objective import Deployment


@dataclass(frozen=True)
class MeanShare:
    """Minus the log of the MEAN probability of the positives: `any_positive` plus the log of their number."""

    def __call__(self, affinity: Tensor, relation: Related, /) -> Outcome:
        found = any_positive(affinity, relation)
        positives = ((relation.cost == 0) & relation.candidate).sum(1)
        return found._replace(values=found.values + positives.clamp_min(1).to(affinity.dtype).log() * found.weight)


def _rows_as_samples(batch: Points) -> Points:
    """Every row a sample of its own, so that views of one sample can be positives of each other; no id of a memory is below 0."""
    return batch._replace(ids=-1 - torch.arange(len(batch.embeddings), device=batch.embeddings.device))


class SupCon(NeighborhoodObjective):
    """Supervised contrastive loss: every positive should take its share in a softmax of cosines over all other points.

        placement="outside":  mean_i 1/|P_i| sum_(j in P_i) -log p_ij,   p_ij = exp(s_ij) / sum_(k != i) exp(s_ik)
        placement="inside":   mean_i -log( 1/|P_i| sum_(j in P_i) p_ij ),   s = cos / temperature

    P_i are the other points of the class of i. The usual choice to pretrain with labels and large batches.

    Parameters
    ----------
    temperature : float, default=0.1
        Divides the cosines. 0.05 to 0.1 is usual.
    placement : {"outside", "inside"}, default="outside"
        Where the sum over the positives stands: outside the log, the paper's choice, or inside, where one near positive is enough. Inside,
        the loss is `NCA(metric="cosine")` plus the mean log of the number of positives.
    views : bool, default=False
        Whether rows with the same id are augmented views, and positives of each other, as in the paper. Otherwise they are the same sample
        and never neighbors.
    engine : {"auto", "dense", "torch", "numba", "triton"}, default="auto"
        How the pairs are computed. "auto" builds the matrix of pairs for small batches and, with placement="outside", streams through
        large ones in O(n d) memory. "dense" always builds the matrix; the others force one streaming engine, for tests and measurements.
    precision : {"highest", "high", "fast"}, default="highest"
        Arithmetic of the streaming engine on CUDA: as exact as float32, TF32, or float16.

    Notes
    -----
    A composition. Queries without a positive are skipped.

    Differs: no factor of the temperature in front; the mean over queries, not the sum.

    References
    ----------
    [khosla2020supcon] eq. (2)-(3)

    Examples
    --------
    >>> import torch
    >>> from nearkin import SupCon
    >>> embeddings, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> SupCon()(embeddings, labels)  # log 3: all cosines are 0
    tensor(1.0986)
    """

    keys = ("khosla2020supcon",)

    def __init__(
        self,
        temperature: float = 0.1,
        placement: Literal["outside", "inside"] = "outside",
        views: bool = False,
        *,
        engine: Engine = "auto",
        precision: Precision = "highest",
    ) -> None:
        check_positive("temperature", temperature)
        check_choice("placement", placement, ("outside", "inside"))
        criterion = mean_positive if placement == "outside" else MeanShare()
        super().__init__(InBatch(), cosine(temperature), SameLabel(), criterion, engine=engine, precision=precision)
        self.views = views

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        return super().outcome(_rows_as_samples(batch) if self.views and references is None else batch, references)


class NTXent(NeighborhoodObjective):
    """NT-Xent: each positive pair against all negatives of its query, in a softmax of cosines; the loss of SimCLR.

        mean over positive pairs (i, j) of -log( exp(s_ij) / (exp(s_ij) + sum_(k in N_i) exp(s_ik)) ),   s = cos / temperature

    With positives="views" it needs no labels: rows with the same id are augmented views of one sample, and all other rows are negatives.

    Parameters
    ----------
    temperature : float, default=0.07
        Divides the cosines. 0.05 to 0.5 is usual; take more for small batches.
    positives : {"class", "views"}, default="class"
        What makes two rows positives: the same class, or the same id.
    engine : {"auto", "dense", "torch", "numba", "triton"}, default="auto"
        How the pairs are computed. "auto" builds the matrix of pairs for small batches and streams through large ones in O(n d) memory.
        "dense" always builds the matrix; the others force one streaming engine, for tests and measurements.
    precision : {"highest", "high", "fast"}, default="highest"
        Arithmetic of the streaming engine on CUDA: as exact as float32, TF32, or float16.

    Notes
    -----
    A composition. The unit is the pair: the mean is over positive pairs. With one positive for each query it equals `SupCon`. On a CPU,
    large batches of classes or samples with up to 16 rows each are streamed. Larger classes, and all on a GPU, go block by block: at most
    2^24 pairs are held at a time, and a second pass gives the gradient. In `nearkin train`, positives=views goes with views=2.

    Differs: with more than two rows of a class or sample, the other positives of a query are left out of the denominator of a pair.

    References
    ----------
    [chen2020simclr] eq. (1)
    [sohn2016npair]

    Examples
    --------
    >>> import torch
    >>> from nearkin import NTXent
    >>> views = torch.eye(2).repeat(2, 1)  # two samples, each seen twice
    >>> round(NTXent(1.0, positives="views")(views, ids=[7, 8, 7, 8]).item(), 4)  # log(1 + 2 exp(0 - 1))
    0.5514
    """

    keys = ("chen2020simclr", "sohn2016npair")

    def __init__(
        self,
        temperature: float = 0.07,
        positives: Literal["class", "views"] = "class",
        *,
        engine: Engine = "auto",
        precision: Precision = "highest",
    ) -> None:
        check_positive("temperature", temperature)
        check_choice("positives", positives, ("class", "views"))
        super().__init__(InBatch(), cosine(temperature), SameLabel(), each_pair, engine=engine, precision=precision)
        self.positives = positives

    @property
    def supervision(self) -> Supervision:
        return "classes" if self.positives == "class" else "ids"

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        if self.positives == "class":
            return super().outcome(batch, references)
        if batch.ids is None:
            raise ValueError("ids are missing: positives='views' knows the views of a sample by its id; pass ids=")
        if references is not None:
            raise ValueError("NTXent(positives='views') compares the views of a batch and takes no references=; use InfoNCE")
        return super().outcome(_rows_as_samples(batch._replace(labels=batch.ids)), None)

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """Fill the memory, if it has one (`choosing_among`); otherwise there is no state.

        Parameters
        ----------
        embeddings, labels, ids
            As in the call.
        """
        batch = self._checked(embeddings, labels, ids)
        self.references.update(batch if self.positives == "class" else batch._replace(labels=batch.ids))


class InfoNCE(NeighborhoodObjective):
    """InfoNCE over pairs from two encoders: every image finds its text among all texts, and every text its image.

        (mean_i -log p(text_i | image_i) + mean_i -log p(image_i | text_i)) / 2,   p by softmax of cos / temperature

    Call it as `objective(images, ids=ids, references=Points(texts, None, ids))`: rows with equal ids belong together. Several texts of an
    image share its id.

    Parameters
    ----------
    temperature : float, default=0.07
        Divides the cosines; where it starts, if it is learned.
    learn_temperature : bool, default=False
        Learn the temperature as a parameter, `log_scale`, as CLIP does. It never falls below 0.01.
    symmetric : bool, default=True
        Whether the references choose among the queries, too.
    engine : {"auto", "dense", "torch", "numba", "triton"}, default="auto"
        How the pairs are computed. "auto" builds the matrix of pairs for small batches and streams through large ones in O(n d) memory.
        "dense" always builds the matrix; the others force one streaming engine, for tests and measurements.
    precision : {"highest", "high", "fast"}, default="highest"
        Arithmetic of the streaming engine on CUDA: as exact as float32, TF32, or float16.

    Notes
    -----
    A composition, once for each direction; both stream through large batches. Over several ranks gather both sides first, so that every
    pair meets all others.

    Differs: a row with several positives asks for any of them.

    References
    ----------
    [oord2018cpc] eq. (4)
    [radford2021clip]

    Examples
    --------
    >>> import torch
    >>> from nearkin import InfoNCE, Points
    >>> images, texts, ids = torch.eye(2), torch.eye(2), torch.tensor([4, 5])
    >>> round(InfoNCE(1.0)(images, ids=ids, references=Points(texts, None, ids)).item(), 4)  # log(1 + exp(-1))
    0.3133
    """

    keys = ("oord2018cpc", "radford2021clip")

    def __init__(
        self,
        temperature: float = 0.07,
        learn_temperature: bool = False,
        symmetric: bool = True,
        *,
        engine: Engine = "auto",
        precision: Precision = "highest",
    ) -> None:
        check_positive("temperature", temperature)
        super().__init__(InBatch(), InnerProduct(), SameId(), any_positive, engine=engine, precision=precision)
        self.temperature, self.symmetric = temperature, symmetric
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature))) if learn_temperature else None

    def deployment(self) -> Deployment:
        learned = self.temperature if self.log_scale is None else math.exp(-float(self.log_scale.detach().clamp_max(math.log(100))))
        return Deployment("cosine", learned)

    def choosing_among(self, references: References) -> Self:
        """Refuse: the other side comes with every call.

        Parameters
        ----------
        references : References
            None are taken.

        Raises
        ------
        ValueError
            Always, with what to pass instead.
        """
        raise ValueError(
            "InfoNCE compares two sides and takes the other one in every call: pass references=Points(texts, None, ids), or with a "
            "MomentumQueue references=queue(Points(keys, None, ids))"
        )

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        if references is None:
            raise ValueError("InfoNCE compares two sides: pass the other one as references=Points(embeddings, None, ids)")
        scale = 1 / self.temperature if self.log_scale is None else self.log_scale.clamp_max(math.log(100)).exp()
        mine = batch._replace(embeddings=unit(batch.embeddings) * scale)
        theirs = references._replace(embeddings=unit(references.embeddings))
        there = super().outcome(mine, theirs)
        if not self.symmetric:
            return there
        back = super().outcome(theirs, mine)
        mean = (back.values * back.weight).sum() / back.weight.sum().clamp_min(1)
        return there._replace(values=(there.values + mean * (there.weight > 0)) / 2, active=there.active + back.active)
