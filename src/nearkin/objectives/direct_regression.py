"""Direct regression: a learned linear head predicts the targets, without neighbors. The baseline of NCA regression."""

import torch
from torch import Tensor, nn

from nearkin.compose.autocast import exact
from nearkin.compose.outcome import Outcome
from nearkin.compose.points import Points
from nearkin.compose.relation import Supervision
from nearkin.compose.validation import check_whole
from nearkin.objectives import inputs
from nearkin.objectives.objective import Objective


class DirectRegression(Objective):
    """Direct regression: the squared error of a learned linear head.

        loss = mean_i |W z_i + b - y_i|^2

    The baseline to compare `NCARegression` with. For neighbors, search in the embeddings z, the layer before the head.

    Parameters
    ----------
    dimension : int
        The embedding's size d.
    targets : int, default=1
        How many numbers each sample has, t.

    Notes
    -----
    It is ordinary least squares on top of a network and has no paper of its own. It takes no `references=`. Give
    `objective.parameters()` to the optimizer.

    Examples
    --------
    >>> import torch
    >>> from nearkin import DirectRegression
    >>> objective = DirectRegression(dimension=2)
    >>> _ = objective.head.weight.data.copy_(torch.tensor([[1.0, 2.0]]))
    >>> _ = objective.head.bias.data.fill_(0.5)
    >>> embeddings = torch.tensor([[1.0, 1.0], [0.0, -1.0]])
    >>> objective.predict(embeddings).tolist()
    [[3.5], [-1.5]]
    >>> objective(embeddings, torch.tensor([3.0, -2.5])).item()
    0.625
    """

    def __init__(self, dimension: int, targets: int = 1) -> None:
        super().__init__()
        for name, value in (("dimension", dimension), ("targets", targets)):
            check_whole(name, value)
        self.head = nn.Linear(dimension, targets)

    @property
    def supervision(self) -> Supervision:
        return "numbers"

    def known_dimension(self) -> int:
        return self.head.in_features

    @torch.no_grad()
    def predict(self, embeddings: Tensor) -> Tensor:
        """Return the targets that the head predicts.

        Parameters
        ----------
        embeddings : Tensor of shape (n, d)
            The network's output.

        Returns
        -------
        Tensor of shape (n, t)
            Predicted targets. No gradient flows through it.
        """
        embeddings = inputs.check_embeddings(embeddings)
        inputs.check_dimension(embeddings, self.known_dimension())
        with exact(embeddings):
            return self._predicted(embeddings)

    def outcome(self, batch: Points, references: Points | None) -> Outcome:
        if references is not None:
            raise ValueError("DirectRegression uses no neighbors and takes no references=; leave it out")
        assert batch.labels is not None
        passed, known = batch.labels.shape[1], self.head.out_features
        if passed != known:
            raise ValueError(f"labels have {passed} columns, but this objective was built for {known}; build it with targets={passed}")
        values = (self._predicted(batch.embeddings) - batch.labels).square().sum(1)  # (n,)
        return Outcome(values, torch.ones_like(values), torch.zeros((), dtype=torch.int64, device=values.device))

    def _predicted(self, embeddings: Tensor) -> Tensor:
        weight, bias = self.head.weight.to(embeddings.dtype), self.head.bias.to(embeddings.dtype)
        return embeddings @ weight.T + bias  # (n, t)
