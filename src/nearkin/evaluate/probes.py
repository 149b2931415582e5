"""Linear probes: how much does each layer of a network know of the classes?"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from nearkin.evaluate.classification import accuracy
from nearkin.evaluate.comparison import class_labels, finite
from nearkin.evaluate.score import DRAWS, Score
from nearkin.models.layer_outputs import features

WIDTH = 4096  # numbers of a layer that a probe sees at most; larger maps are averaged over patches
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
    """The accuracy of softmax regression on the frozen output of each named layer; train and test are (inputs, labels).

    [huang2019and] table 2. Maps (c, h, w) of more than 4,096 numbers are averaged over patches, coordinates standardized on
    the training part. The fit starts from zero and sees all points at every step, so it has no seed.
    """
    if not layers:
        raise ValueError("layers is empty; name some, nearkin.models.layer_outputs.layers(network) lists them")
    found = {}
    for layer in layers:
        x, asked = (layer_features(network, inputs, layer) for inputs, _ in (train, test))
        predicted = SoftmaxRegression(x, train[1]).predict(asked)
        found[layer] = accuracy(predicted, test[1], name=layer, split=split, draws=draws, seed=seed)
    return found


@torch.no_grad()
def layer_features(network: nn.Module, inputs: Tensor, layer: str) -> Tensor:
    """(n, at most 4,096) float32: what a layer gives for inputs, in evaluation mode, maps averaged over patches to fit."""
    device = next(network.parameters(), torch.zeros(())).device
    mode = network.training
    network.eval()
    try:
        rows = [_narrowed(features(network, part.to(device), layer)).float() for part in torch.split(inputs, BATCH)]
    finally:
        network.train(mode)
    return torch.cat(rows)


def _narrowed(x: Tensor) -> Tensor:
    """(b, c, h, w) averaged to the largest square of patches that fits; anything else flat."""
    if x.ndim == 4 and x[0].numel() > WIDTH:
        side = max(int((WIDTH / x.shape[1]) ** 0.5), 1)
        x = functional.adaptive_avg_pool2d(x, (min(side, x.shape[2]), min(side, x.shape[3])))
    return x.flatten(1)


class SoftmaxRegression:
    """Multinomial logistic regression with a small square penalty, by L-BFGS on all points from zero: no randomness."""

    def __init__(self, x: Tensor, labels: Tensor, penalty: float = 1e-4, steps: int = 200) -> None:
        finite(x, "features")
        self.classes, which = torch.unique(class_labels(labels, len(x), "labels").to(x.device), return_inverse=True)
        spread, self.mean = torch.std_mean(x, dim=0, correction=0)
        self.scale = torch.where(spread > 0, 1 / spread, 0.0)  # a coordinate that never varies says nothing
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
