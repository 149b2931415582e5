"""Linear probes: how much does each layer of a network know of the classes?"""

from collections.abc import Sequence

from torch import Tensor, nn

from nearkin.evaluate.score import DRAWS, Score


def linear_probes(
    network: nn.Module,
    layers: Sequence[str],
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    *,
    split: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Score]:
    """The accuracy of softmax regression on the frozen output of each named layer; train and test are (inputs, labels)."""
    raise NotImplementedError
