"""Linear probes: how well a linear classifier on each layer of a network predicts the classes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from nearkin.evaluate.classification import accuracy
from nearkin.evaluate.comparison import class_labels, finite
from nearkin.evaluate.score import DRAWS, Score
from nearkin.models.layer_outputs import features

WIDTH = 4096  # largest number of features of a probe; larger maps are averaged over patches
BATCH = 256


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
    """Measure the accuracy of softmax regression on the frozen output of each layer.

    Feature maps (c, h, w) of more than 4,096 numbers are averaged over patches. Features are standardized on the training part. The fit is
    deterministic: L-BFGS from zero on all points.

    Parameters
    ----------
    network : torch.nn.Module
        Run in evaluation mode; its mode is restored.
    layers : sequence of str
        Names of modules, as `nearkin.models.layers(network)` lists them.
    train : pair of Tensors
        Inputs and labels (n,) that the probes are fitted on.
    test : pair of Tensors
        Inputs and labels that they are scored on.
    split : str, optional
        The part of the data that was measured, such as "validation" or "test". Scores of "test" refuse to be compared (see `Score`).
    draws : int, default 1000
        Bootstrap resamples of the queries for the 95% interval; 0 for none.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    dict of str to Score
        One accuracy for each layer, by its name.

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import linear_probes
    >>> network = torch.nn.Sequential(torch.nn.Identity())
    >>> x, labels = torch.tensor([[0.0], [0.2], [0.8], [1.0]]), torch.tensor([0, 0, 1, 1])
    >>> linear_probes(network, ["0"], (x, labels), (x, labels), draws=0)["0"].value
    1.0

    References
    ----------
    [huang2019and], table 2
    """
    if not layers:
        raise ValueError("layers is empty; name at least one: nearkin.models.layers(network) lists them")
    found = {}
    for layer in layers:
        x, tested = (layer_features(network, inputs, layer) for inputs, _ in (train, test))
        predicted = SoftmaxRegression(x, train[1]).predict(tested)
        found[layer] = accuracy(predicted, test[1], name=layer, split=split, draws=draws, seed=seed)
    return found


@torch.no_grad()
def layer_features(network: nn.Module, inputs: Tensor, layer: str) -> Tensor:
    """(n, at most 4,096) float32: the output of a layer in evaluation mode, maps averaged over patches to fit."""
    device = next(network.parameters(), torch.zeros(())).device
    mode = network.training
    network.eval()
    try:
        rows = [_narrowed(features(network, part.to(device), layer)).float() for part in torch.split(inputs, BATCH)]
    finally:
        network.train(mode)
    return torch.cat(rows)


def _narrowed(x: Tensor) -> Tensor:
    """(b, c, h, w) averaged to the largest square of patches that fits; anything else flattened."""
    if x.ndim == 4 and x[0].numel() > WIDTH:
        side = max(int((WIDTH / x.shape[1]) ** 0.5), 1)
        x = functional.adaptive_avg_pool2d(x, (min(side, x.shape[2]), min(side, x.shape[3])))
    return x.flatten(1)


class SoftmaxRegression:
    """Multinomial logistic regression with a small L2 penalty, by L-BFGS on all points from zero: deterministic."""

    def __init__(self, x: Tensor, labels: Tensor, penalty: float = 1e-4, steps: int = 200) -> None:
        finite(x, "features")
        self.classes, which = torch.unique(class_labels(labels, len(x), "labels").to(x.device), return_inverse=True)
        spread, self.mean = torch.std_mean(x, dim=0, correction=0)
        self.scale = torch.where(spread > 0, 1 / spread, 0.0)  # a constant feature is ignored
        self.weight = torch.zeros(x.shape[1], len(self.classes), device=x.device, dtype=x.dtype, requires_grad=True)
        self.bias = torch.zeros(len(self.classes), device=x.device, dtype=x.dtype, requires_grad=True)
        x = (x - self.mean) * self.scale
        optimizer = torch.optim.LBFGS([self.weight, self.bias], max_iter=steps, line_search_fn="strong_wolfe", history_size=10)

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = functional.cross_entropy(x @ self.weight + self.bias, which) + penalty / 2 * self.weight.square().sum()
            value.backward()  # type: ignore[no-untyped-call]
            return value

        with torch.enable_grad():
            optimizer.step(loss)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """(n,) the class with the largest logit."""
        logits = ((x - self.mean) * self.scale) @ self.weight + self.bias
        classes: Tensor = self.classes[logits.argmax(1)]
        return classes
