"""Soft neighbors: every query draws a neighbor by softmax over the others; how right is the draw?"""

from typing import Literal

from nearkin.compose.affinity import Affinity, SquaredEuclidean, cosine
from nearkin.compose.criterion import any_positive, expected_cost
from nearkin.compose.references import InBatch
from nearkin.compose.relation import LabelDistance, Relation, SameLabel
from nearkin.compose.validation import check_choice, check_positive
from nearkin.objectives.neighborhood import Engine, NeighborhoodObjective, Precision

Metric = Literal["squared_euclidean", "cosine"]


def _affinity(metric: str, temperature: float) -> Affinity:
    check_positive("temperature", temperature)
    check_choice("metric", metric, ("squared_euclidean", "cosine"))
    return cosine(temperature) if metric == "cosine" else SquaredEuclidean(temperature)


class NCA(NeighborhoodObjective):
    """Neighborhood components analysis: the chance that a soft nearest neighbor is of the same class.

        p_ij = exp(-|z_i - z_j|^2 / temperature) / sum_(k != i) exp(-|z_i - z_k|^2 / temperature)
        p_i  = sum_(j != i, y_j = y_i) p_ij
        form="log":       mean of -log p_i, over the queries that have kin
        form="expected":  mean of 1 - p_i, the expected leave-one-out error of the stochastic 1-NN rule

    `relation` lets other supervision in: LabelOverlap() for multi-hot sets, LabelDistance(f) for your own label distance
    (with form="expected"). A query without kin cannot be valid in the log form and counts as error 1 in the expected one.
    [goldberger2005nca]; [ren2014convolutional] eq. (1)-(3); [taylor2010pose] eq. (8)-(18)
    Differs: the log form is the default, because the printed expected form has no gradient where everything is wrong;
    eq. (2) and (4)-(6) of [ren2014convolutional] are used as corrected (their printed gradient is identically zero).
    """

    keys = ("goldberger2005nca", "ren2014convolutional", "taylor2010pose")

    def __init__(
        self,
        form: Literal["log", "expected"] = "log",
        temperature: float = 1.0,
        metric: Metric = "squared_euclidean",
        relation: Relation | None = None,
        *,
        engine: Engine = "auto",
        precision: Precision = "highest",
    ) -> None:
        check_choice("form", form, ("log", "expected"))
        super().__init__(
            references=InBatch(),
            affinity=_affinity(metric, temperature),
            relation=SameLabel() if relation is None else relation,
            criterion=any_positive if form == "log" else expected_cost,
            engine=engine,
            precision=precision,
        )


class NCARegression(NeighborhoodObjective):
    """NCA regression: the expected squared error of copying a soft nearest neighbor's target.

        L = mean_i sum_(j != i) p_ij |y_i - y_j|^2,   p_ij as in NCA

    Targets may be (n,) or (n, t). With targets sqrt(1/2) times one-hot it is the expected form of NCA.
    [taylor2010pose] eq. (19)-(27)
    Differs: the mean over queries, not the sum (reduction="sum" is the print); eq. (22) is used as corrected.
    """

    keys = ("taylor2010pose",)

    def __init__(
        self,
        temperature: float = 1.0,
        metric: Metric = "squared_euclidean",
        *,
        engine: Engine = "auto",
        precision: Precision = "highest",
    ) -> None:
        super().__init__(
            references=InBatch(),
            affinity=_affinity(metric, temperature),
            relation=LabelDistance(),
            criterion=expected_cost,
            engine=engine,
            precision=precision,
        )
