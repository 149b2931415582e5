"""Soft neighbors: every query draws a neighbor by a softmax over the other points, and the loss is how wrong that draw is."""

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
    """Neighborhood components analysis: -log of the probability that a soft nearest neighbor has the query's class.

        p_ij = exp(-|z_i - z_j|^2 / temperature) / sum_(k != i) exp(-|z_i - z_k|^2 / temperature)
        p_i  = sum_(j != i, y_j = y_i) p_ij
        form="log":       mean of -log p_i over the queries that have a positive
        form="expected":  mean of 1 - p_i, the expected leave-one-out error of a stochastic 1-NN classifier

    NCA is the default objective for class labels. It optimizes what a kNN classifier uses, has no parameters of its own, and
    needs only that most queries have a positive in the batch: draw several samples of each class.

    Parameters
    ----------
    form : {"log", "expected"}, default="log"
        "log" has a gradient everywhere. "expected" is the published loss, an error rate between 0 and 1; it is flat where a
        query's neighbors are all wrong, so use it to fine-tune, or with a graded `relation`.
    temperature : float, default=1.0
        Divides the squared distances. A smaller value makes the neighborhood narrower, closer to 1-NN, and lets embeddings of
        the same scale reach a lower loss. Lower it (0.05 to 0.2) if the embeddings have unit length.
    metric : {"squared_euclidean", "cosine"}, default="squared_euclidean"
        What "near" means. With "cosine" the affinity is cos(z_i, z_j) / temperature; take a temperature of 0.05 to 0.2
        then, because cosines differ by at most 2. Search the embeddings with the same metric.
    relation : Relation, optional
        How near two points should be; default `SameLabel()`, for integer classes. Pass `LabelOverlap()` for multi-hot label
        sets, or `LabelDistance(f)` with form="expected" for your own label distance.
    engine : {"auto", "dense", "torch", "numba", "triton"}, default="auto"
        How the pairs are computed. "auto" builds the whole matrix of pairs for small batches and streams through it for
        large ones, in O((n + m) d) memory. "dense" always builds the matrix; use it if you need second derivatives. The
        other three force one streaming engine; they are for tests and measurements.
    precision : {"highest", "high", "fast"}, default="highest"
        Arithmetic of the streaming engine on CUDA: "highest" is as exact as float32, "high" is TF32, "fast" is float16.
        Other devices ignore it. Try "high" if the loss takes a large share of the step.

    Notes
    -----
    Queries without a positive are skipped in the log form (and counted in `objective.last.skipped`). In the expected form
    they count as error 1.

    Differs: the log form is the default, because the published expected form has no gradient where everything is wrong;
    eq. (2) and (4)-(6) of [ren2014convolutional] are used as corrected, because their printed gradient is identically zero.

    References
    ----------
    [goldberger2005nca]
    [ren2014convolutional] eq. (1)-(3)
    [taylor2010pose] eq. (8)-(18)

    Examples
    --------
    >>> import torch
    >>> from nearkin import NCA
    >>> embeddings, labels = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([0, 0, 1, 1])
    >>> objective = NCA()
    >>> objective(embeddings, labels)
    tensor(0.0246)
    >>> NCA(form="expected")(embeddings, labels)  # 2% of the soft neighbors are wrong
    tensor(0.0240)
    >>> NCA(temperature=0.1, metric="cosine")(torch.eye(4), labels, reduction="none")
    tensor([1.0986, 1.0986, 1.0986, 1.0986])

    Multi-hot label sets:

    >>> from nearkin.compose import LabelOverlap
    >>> NCA(relation=LabelOverlap())(embeddings, torch.tensor([[1, 0], [1, 1], [0, 1], [0, 1]]))
    tensor(0.3528)
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
    """NCA regression: the expected squared error of copying the target of a soft nearest neighbor.

        loss = mean_i sum_(j != i) p_ij |y_i - y_j|^2,   p_ij as in NCA

    Use it for numbers: ages, prices, coordinates. Nearest neighbors then have similar targets, and kNN regression works.

    Parameters
    ----------
    temperature : float, default=1.0
        Divides the squared distances. A smaller value makes the neighborhood narrower. Lower it (0.05 to 0.2) if the
        embeddings have unit length.
    metric : {"squared_euclidean", "cosine"}, default="squared_euclidean"
        What "near" means. With "cosine" the affinity is cos(z_i, z_j) / temperature; take a temperature of 0.05 to 0.2
        then, because cosines differ by at most 2. Search the embeddings with the same metric.
    engine : {"auto", "dense", "torch", "numba", "triton"}, default="auto"
        How the pairs are computed. "auto" builds the whole matrix of pairs for small batches and streams through it for
        large ones, in O((n + m) d) memory. "dense" always builds the matrix; use it if you need second derivatives. The
        other three force one streaming engine; they are for tests and measurements.
    precision : {"highest", "high", "fast"}, default="highest"
        Arithmetic of the streaming engine on CUDA: "highest" is as exact as float32, "high" is TF32, "fast" is float16.
        Other devices ignore it. Try "high" if the loss takes a large share of the step.

    Notes
    -----
    The loss is in squared units of the targets. Standardize the targets if they are large or have different units; otherwise
    the largest one decides. With targets sqrt(1/2) times one-hot classes the loss is the expected form of NCA.

    Differs: the mean over queries, not the sum (reduction="sum" gives the published loss); eq. (22) is used as corrected.

    References
    ----------
    [taylor2010pose] eq. (19)-(27)

    Examples
    --------
    >>> import torch
    >>> from nearkin import NCARegression
    >>> embeddings = torch.tensor([[0.0], [1.0], [3.0]])
    >>> objective = NCARegression()
    >>> objective(embeddings, torch.tensor([10.0, 10.5, 14.0]), reduction="none")
    tensor([ 0.2553,  0.8191, 12.2751])
    >>> targets = torch.tensor([[10.0, 1.0], [10.5, 0.0], [14.0, 0.0]])  # several numbers for each sample
    >>> objective(embeddings, targets)
    tensor(5.1029)
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
