"""Objective: the interface that every loss of nearkin shares.

Call it with embeddings and labels, pass its parameters to the optimizer, and call `update` after the optimizer's step.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from nearkin.compose.autocast import exact, lowered
from nearkin.compose.outcome import Outcome, Reduction, reduce
from nearkin.compose.points import Points
from nearkin.compose.references import References
from nearkin.compose.relation import Supervision
from nearkin.compose.value_checks import UNMOVED, UNSTEPPED, checked, collected, held, inspected, warn_once
from nearkin.objectives import inputs, one_operator
from nearkin.objectives.guards import trust_code
from nearkin.objectives.recorded import replayed


class Deployment(NamedTuple):
    """How to search embeddings that an objective has trained.

    Parameters
    ----------
    metric : str, default="squared_euclidean"
        The metric of the search index, a name of `nearkin.compose.METRICS`.
    temperature : float or None, default=None
        The temperature of the softmax that the objective trained; None if it trained none.

    Examples
    --------
    >>> from nearkin import NCA
    >>> NCA(temperature=0.1, metric="cosine").deployment()
    Deployment(metric='cosine', temperature=0.1)
    """

    metric: str = "squared_euclidean"
    temperature: float | None = None


class Last:
    """Counts of an objective's last call, kept as `objective.last`.

    A query is *valid* if the objective could compute a value for it, and *skipped* otherwise: in most objectives a query
    without a positive is skipped, because there is nothing it could find. Skipped queries have value 0 and weight 0, so
    they change neither the mean nor the gradient. The counts stay on the device until you read them, so that training
    does not wait for them; each property below except `queries`, `skipped_mask` and `active_on_device` waits once.

    Parameters
    ----------
    weight : Tensor
        (n,) how much each query counts, 0 where it was skipped.
    active : Tensor
        () how many pairs or triplets had a part in the loss.
    clamped : Tensor, optional
        () how many queries had their k lowered.

    Examples
    --------
    The third point is the only one of its class: it has no positive and is skipped.

    >>> import torch
    >>> from nearkin import NCA
    >>> objective = NCA()
    >>> loss = objective(torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 0, 1]))
    >>> objective.last
    Last(queries=3, valid=2, skipped=1, active=4, clamped=0)
    >>> objective.last.skipped_mask
    tensor([False, False,  True])
    """

    def __init__(self, weight: Tensor, active: Tensor, clamped: Tensor | None = None) -> None:
        self._weight, self._active, self._clamped = weight, active, clamped

    @property
    def queries(self) -> int:
        """Number of queries in the batch."""
        return len(self._weight)

    @property
    def valid(self) -> int:
        """Number of queries that have a value and count in the mean."""
        return int((self._weight > 0).sum())

    @property
    def skipped(self) -> int:
        """Number of queries that were skipped, because they had no positive or no candidate: `queries - valid`."""
        return self.queries - self.valid

    @property
    def skipped_mask(self) -> Tensor:
        """Boolean tensor (n,) on the embeddings' device, True where a query was skipped."""
        return self._weight == 0

    @property
    def active(self) -> int:
        """Number of pairs or triplets that contributed to the loss. It falls toward 0 when a margin is met everywhere."""
        return int(self._active)

    @property
    def active_on_device(self) -> Tensor:
        """`active` as a tensor on the device, to add up without waiting; in a CUDA graph it holds each replay's count."""
        return self._active

    @property
    def clamped(self) -> int:
        """Number of queries with fewer than k candidates, for which k was lowered to that number."""
        return 0 if self._clamped is None else int(self._clamped)

    def __repr__(self) -> str:
        counts = f"queries={self.queries}, valid={self.valid}, skipped={self.skipped}, active={self.active}, clamped={self.clamped}"
        return f"Last({counts})"


@torch.no_grad()
def _sums(parameters: list[nn.Parameter]) -> Tensor:
    """(p,) the sum of each; parameters that differ in it have moved."""
    return torch.stack([one.sum() for one in parameters])


def _kept(x: Tensor) -> Tensor:
    """The tensor as it can be kept: without a graph, which most have not, and not wrapped by torch.func, which forbids to copy it."""
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        while torch._C._functorch.is_functorch_wrapped_tensor(x):
            x = torch._C._functorch.get_unwrapped(x)
    return x.detach() if x.requires_grad else x


class Objective(nn.Module, ABC):
    """Base class of all objectives: a loss over the embeddings of a batch.

    An objective is a `torch.nn.Module`. Use it in a training loop in three places:

    1. give its parameters to the optimizer, `[*network.parameters(), *objective.parameters()]`;
    2. call it: `loss = objective(embeddings, labels)`;
    3. call `objective.update(embeddings, labels, ids=ids)` after `optimizer.step()`.

    Save `objective.state_dict()` with the network: it holds learned class vectors, memory banks, centers and annealing
    steps. To write an objective of your own, first try `NeighborhoodObjective`, which composes one from references,
    affinity, relation and criterion. If yours does not fit, subclass `Objective` and define `supervision` and `outcome`.

    Attributes
    ----------
    keys : tuple of str
        The papers of the objective, as keys of papers.bib; `nearkin.cite` prints them as BibTeX.
    refresh_every : int
        Number of epochs between two calls of `refresh`; 0 if it needs none.
    discovers : bool
        Whether training looks for neighborhoods between epochs and passes them to `trust`.
    inertia : float or None
        Share of a teacher's weights that stays in every step, where the second of two views passes through a teacher; else None.
    last : Last or None
        Counts of the last call: valid and skipped queries, active pairs. None before the first call.

    Examples
    --------
    >>> import torch
    >>> from nearkin import CenterLoss
    >>> _ = torch.manual_seed(0)
    >>> network, objective = torch.nn.Linear(8, 2), CenterLoss(num_classes=3, dimension=2)
    >>> optimizer = torch.optim.SGD([*network.parameters(), *objective.parameters()], lr=0.1)
    >>> x, labels = torch.randn(12, 8), torch.arange(3).repeat(4)
    >>> for _ in range(5):
    ...     embeddings = network(x)
    ...     loss = objective(embeddings, labels)
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    ...     objective.update(embeddings, labels)  # the class centers follow the embeddings
    """

    keys: ClassVar[tuple[str, ...]] = ()
    refresh_every: int = 0
    discovers: ClassVar[bool] = False
    inertia: float | None = None
    # Of the last call: weight, active and clamped, a plain tuple, which torch.compile can keep; of a recorded step one tensor (n + 2,).
    _counts: tuple[Tensor, Tensor, Tensor | None] | Tensor | None = None
    _steps: tuple[int, int, Tensor | None] | None = (0, 0, None)  # calls, versions and sums of parameters with gradients; None: all is said
    _unmoved: tuple[int, int] = (0, 0)  # calls with a gradient since the state last moved, and the versions of that state

    def __init__(self) -> None:
        super().__init__()
        self._number = one_operator.numbered(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._number = one_operator.numbered(self)  # a copy is another objective

    @property
    def last(self) -> Last | None:
        """Counts of the last call: valid and skipped queries, active pairs. None before the first call."""
        if isinstance(self._counts, Tensor):  # of a recorded step
            return Last(self._counts[2:], self._counts[0].long(), self._counts[1].long())
        return None if self._counts is None else Last(*self._counts)

    @property
    @abstractmethod
    def supervision(self) -> Supervision:
        """What labels the objective takes: "classes", "numbers", "sets" or "ids".

        "classes" are integers (n,), "numbers" are targets (n,) or (n, t), "sets" are multi-hot rows (n, C), and with
        "ids" the objective takes no labels but needs `ids=`.
        """

    @abstractmethod
    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        """Compute the value and the weight of every query; `forward` calls this after it has checked its arguments.

        Parameters
        ----------
        batch : Points
            The queries: embeddings (n, d), labels as `supervision` says, and ids (n,) or None.
        references : Points or None
            The points to choose among instead of the objective's own, or None.

        Returns
        -------
        Outcome
            `values` (n,), `weight` (n,) with 0 for skipped queries, `active` and, where k was lowered, `clamped`.
        """

    def moves(self) -> bool:
        """Return whether `update` changes anything, so that a training loop that never calls it is warned, once."""
        return False

    def known_classes(self) -> int | None:
        """Return C if the objective holds one vector for each of C classes, so that labels must be 0..C-1; else None."""
        return None

    def known_dimension(self) -> int | None:
        """Return d if the objective holds vectors of its own that embeddings must match in size; else None."""
        return None

    def deployment(self) -> Deployment:
        """Return the metric to search with after training: that of the affinity it was trained with, else squared Euclidean.

        Returns
        -------
        Deployment
            The metric and the temperature.
        """
        return Deployment()

    def reads_half(self, batch: Points) -> bool:
        """Return whether `outcome` takes embeddings of 16 bits as they are; otherwise they are converted to float32 first.

        Parameters
        ----------
        batch : Points
            The queries.

        Returns
        -------
        bool
            True if it does.
        """
        return False

    def recordable(self, queries: int) -> bool:
        """Return whether a training step can be recorded in a CUDA graph, because it reads no value back to the host.

        Parameters
        ----------
        queries : int
            Number of rows of the batch.

        Returns
        -------
        bool
            True if it can.
        """
        return True

    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        """Move the objective's own state: memory bank, class centers or annealing step.

        Call it once after each optimizer step. Neither the call nor `backward` changes that state, so gradient
        accumulation and evaluation are safe. Objectives without state do nothing here, so a training loop can always
        call it. Learned class vectors (proxies, heads) are parameters and are moved by the optimizer instead.

        Parameters
        ----------
        embeddings : Tensor of shape (n, d)
            The embeddings of the step; no gradient flows from here.
        labels : Tensor, array or list, optional
            As in the call.
        ids : Tensor, array or list of shape (n,), optional
            As in the call. Objectives with a memory bank require it.
        """
        return None

    def choosing_among(self, references: References) -> Self:
        """Return a copy of this objective that chooses among other references, such as a memory; see `NeighborhoodObjective`.

        Parameters
        ----------
        references : References
            Such as `CrossBatchMemory(4096, d, delay=1000)`.

        Raises
        ------
        ValueError
            If it can compare points of a batch only, as those objectives that are no composition.
        """
        raise ValueError(f"{type(self).__name__} compares points within the batch only and cannot choose among others")

    def refresh(self, seed: int) -> str | None:
        """Look at all samples again, between epochs. Objectives with pseudo-labels use it; the others do nothing.

        Training calls it every `refresh_every` epochs; your own loop should do the same.

        Parameters
        ----------
        seed : int
            Decides what is drawn at random.

        Returns
        -------
        str or None
            Why training must stop, or None to continue.
        """
        return None

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
        """Compute the loss of a batch. Call the objective itself, `objective(embeddings, labels)`, not this method.

        The arithmetic is float32, or float64 for float64 embeddings, also under autocast. Half-precision embeddings are
        converted first, or read as they are by the kernels for many pairs; their gradient comes back in half precision.
        Call `backward` outside of the autocast block, as torch advises: inside, products of gradients are of 16 bits.

        Parameters
        ----------
        embeddings : Tensor of shape (n, d)
            The network's output, one row for each sample. Every row is a query and, in most objectives, also a
            reference of the other rows. Rows need not be sorted by class.
        labels : Tensor, array or list, optional
            What `supervision` names: integer classes (n,), numbers (n,) or (n, t), or multi-hot sets (n, C).
            Objectives with supervision "ids" ignore it. Encode names with `nearkin.encode_labels` first.
        ids : Tensor, array or list of shape (n,), optional
            The samples' numbers in the data set. They tell whether two rows are the same sample, so that a sample is
            never its own neighbor. Pass them as soon as a sample can occur elsewhere: twice in the batch, in a memory
            bank or in `references`. Without ids the rows of a batch count as different samples.
        references : Points, optional
            Points(embeddings, labels, ids) to choose neighbors among instead of the objective's own. Requires ids on
            both sides; `nearkin.compose.fresh_ids(m)` makes ids for references that are none of the queries.
        reduction : {"mean", "sum", "none"}, default="mean"
            "mean" and "sum" reduce over the valid queries, each with its weight. "none" returns the value of every
            query, 0 where it was skipped.
        *misplaced, **unknown
            None are taken. The error says what to write in the place of arguments of pytorch-metric-learning.

        Returns
        -------
        Tensor
            A scalar, or (n,) with reduction="none". If no query is valid, the loss is 0 and still has a graph, so
            `backward` works and gives zero gradients.

        Raises
        ------
        TypeError, ValueError
            If an argument has the wrong type, shape, device or values: NaN or enormous numbers in the embeddings, float
            labels for a class objective, unknown classes. The message names the argument and the fix. On CUDA wrong values
            are found without waiting for the device, and the error comes with a later call.
        RuntimeError
            If values are wrong in a graph of `torch.compile` on a CPU: its assertion, in the same words without the numbers.

        Warns
        -----
        UserWarning
            Once, if a batch holds one class only, so that its loss is 0 (not in a graph of `torch.compile` on a CPU; `last`
            counts the skipped queries there, too); once, if the objective has state that `update` should move and it never
            did; and once, if no optimizer moves its parameters.
        """
        inputs.refuse_unknown(misplaced, unknown)
        if torch.compiler.is_compiling() and one_operator.takes(embeddings, labels, ids, references, reduction):
            parameters = [one for one in self.parameters() if one.requires_grad]
            loss, self._counts = one_operator.evaluated(self._number, Points(embeddings, labels, ids), reduction, parameters)
            return loss
        inputs.check_reduction(reduction)
        inputs.check_not_mapped(embeddings)
        if lowered(embeddings):
            with exact(embeddings):
                return self._loss(embeddings, labels, ids, references, reduction)
        return self._loss(embeddings, labels, ids, references, reduction)

    def _loss(self, embeddings: Tensor, labels: Any, ids: Any, references: Points | None, reduction: Reduction) -> Tensor:
        batch = self._shaped(embeddings, labels, ids)
        if not torch.compiler.is_compiling() and batch.embeddings.requires_grad and self.training:
            if self._steps is not None:
                self._expect_step()
            if self.moves():
                self._expect_update()
        if references is None and (found := replayed(self, batch, reduction)) is not None:
            loss, self.__dict__["_counts"] = found  # past nn.Module, whose setter takes longer than a launch
            return loss
        if torch.compiler.is_compiling():
            with collected() as checks:
                loss = self._evaluated(batch, references, reduction)
            loss = held(loss, inspected(checks))
            trust_code()
            return loss
        return self._evaluated(batch, references, reduction)

    def _evaluated(self, batch: Points, references: Points | None, reduction: Reduction) -> Tensor:
        batch = self._valued(batch, own=references is None)
        if references is not None:
            references = inputs.check_references(references, batch, self.supervision)
        outcome = self.outcome(batch, references)
        counts = _kept(outcome.weight), _kept(outcome.active), None if outcome.clamped is None else _kept(outcome.clamped)
        self.__dict__["_counts"] = counts  # past nn.Module, whose setter torch.compile guards by a dozen conditions
        return reduce(outcome, reduction)

    def evaluated(self, batch: Points) -> Outcome:
        """Return what the objective finds for a batch of which only types and shapes have been checked, among its own references.

        Parameters
        ----------
        batch : Points
            The queries.

        Returns
        -------
        Outcome
            The value and the weight of every query.
        """
        return self.outcome(self._valued(batch, own=True), None)

    def _expect_step(self) -> None:
        """Warn, once, when many calls have left gradients in parameters that no optimizer uses.

        An optimizer clears gradients, or moves the parameters and so changes their versions. Few move them past their versions, by `.data`;
        so their sum is compared before anything is said, which on CUDA is read when it has arrived.
        """
        assert self._steps is not None
        calls, before, sums = self._steps
        mine = [one for one in self.parameters() if one.requires_grad]
        if torch._C._are_functorch_transforms_active() or not all(one.is_leaf for one in mine):
            return  # of torch.func.functional_call: they keep no gradient, and no optimizer has them
        versions, cleared = sum(one._version for one in mine), all(one.grad is None for one in mine)
        if not mine or (calls > 0 and (cleared or versions != before)):
            self._steps = None
        elif cleared:  # nothing has flown back yet; after ten calls somebody clears it
            self._steps = (calls - 1, 0, None) if calls > -10 else None
        elif calls <= 0:
            self._steps = 1, versions, _sums(mine)
        elif calls < UNSTEPPED:
            self._steps = calls + 1, versions, sums
        else:
            self._steps = None
            assert sums is not None
            checked("unstepped", [(_sums(mine) == sums).all()], type(self).__name__)

    def _expect_update(self) -> None:
        """Warn, once, when many calls with a gradient have left the state as it was."""
        calls, before = self._unmoved
        now = sum(buffer._version for buffer in self.buffers())
        calls = calls + 1 if now == before else 1
        self._unmoved = calls, now
        if calls == UNMOVED:
            name = type(self).__name__
            warn_once(
                f"{name}: update",
                f"{name} was called {UNMOVED} times with gradients and its state never moved; add the line "
                "`objective.update(embeddings.detach(), labels, ids=ids)` after `optimizer.step()`: it moves memories, class centers and "
                "annealed margins. This is said once.",
            )

    def _checked(self, embeddings: Any, labels: Any, ids: Any) -> Points:
        return self._valued(self._shaped(embeddings, labels, ids))

    def _shaped(self, embeddings: Any, labels: Any, ids: Any) -> Points:
        """The arguments as tensors of the right type, shape and device; their values are not looked at."""
        inputs.check_shape(embeddings)
        inputs.check_dimension(embeddings, self.known_dimension())
        return Points(embeddings, inputs.check_labels(labels, self.supervision, embeddings), inputs.check_ids(ids, embeddings))

    def _valued(self, batch: Points, own: bool = False) -> Points:
        """The same with values that can be computed with."""
        half = batch.embeddings.dtype in inputs.HALF and own and self.reads_half(batch)
        embeddings = inputs.check_finite_embeddings(batch.embeddings, keeps_half=half)
        labels, known = inputs.check_label_values(batch.labels, self.supervision, embeddings), self.known_classes()
        if known is not None and labels is not None:
            labels = inputs.check_known(labels, known)
        return Points(embeddings, labels, batch.ids)
