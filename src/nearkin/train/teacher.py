"""A teacher: the running mean of a network's weights, which says what the network should find."""

import copy

import torch
from torch import Tensor, nn

from nearkin.compose.validation import check_share


class Teacher(nn.Module):
    """A copy of a network whose weights follow those of the network slowly. No gradient flows into it.

    Parameters
    ----------
    network : torch.nn.Module
        The student. It is copied in its present mode: in training mode, batch normalization goes by each batch.
    inertia : float, default=0.99
        Share of the teacher's weights that stays whenever it follows.

    References
    ----------
    [he2020moco]

    Examples
    --------
    >>> import torch
    >>> from nearkin import NeighborTargets
    >>> from nearkin.train import Teacher
    >>> _ = torch.manual_seed(0)
    >>> network = torch.nn.Linear(4, 8)
    >>> teacher, objective = Teacher(network), NeighborTargets(size=16, dimension=8, steps=3)
    >>> optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    >>> x, ids = torch.randn(16, 4), torch.arange(16)
    >>> for _ in range(3):
    ...     views = x + 0.1 * torch.randn(16, 4), x + 0.01 * torch.randn(16, 4)  # what augmentation makes of images
    ...     embeddings = torch.cat([network(views[0]), teacher(views[1])])
    ...     loss = objective(embeddings, ids=torch.cat([ids, ids]))
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    ...     teacher.follow(network)
    ...     objective.update(embeddings, ids=torch.cat([ids, ids]))
    """

    def __init__(self, network: nn.Module, inertia: float = 0.99) -> None:
        super().__init__()
        check_share("inertia", inertia)
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.inertia = inertia

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """Embed inputs, without a graph."""
        found: Tensor = self.network(inputs)
        return found

    @torch.no_grad()
    def follow(self, network: nn.Module) -> None:
        """Move the weights, and the statistics of normalization, toward those of the network.

        Parameters
        ----------
        network : torch.nn.Module
            The student, after the optimizer's step.
        """
        both = zip(self.network.state_dict().values(), network.state_dict().values(), strict=True)
        mine, its = zip(*[(one, other) for one, other in both if one.is_floating_point()], strict=True)
        torch._foreach_lerp_(mine, its, 1 - self.inertia)
